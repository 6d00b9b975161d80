//! The way out by name. What a sandbox with rules of names sends to addresses no rule speaks of comes here: the host it says
//! it wants is read from the first bytes, held against the names, resolved anew, and connected to. The address that the
//! sandbox had in mind does not count.
//!
//! Each sandbox has a gate of its own, at the host's end of its network pair, so that nothing has to tell one from another.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{ip_original_dst, set_socket_keepalive, set_socket_linger};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::opening::Opening;
use super::resolver::Servers;
use crate::sys;

/// How long a connection may take to say what it wants.
const OPENING_DEADLINE: Duration = Duration::from_secs(10);
/// Bytes, and pieces of them, in which it has to be said.
const MOST_OPENING: usize = 32 << 10;
const MOST_PIECES: usize = 1024;
/// How long an address may take to answer, and how many are tried.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
const MOST_TRIED: usize = 4;
/// What is read ahead of a slow receiver, each way, bytes.
const BUFFER: usize = 16 << 10;
/// Connections of one sandbox at once. More wait to be let in.
const MOST_OF_ONE: usize = 256;
/// Pause when no connection can be accepted, for want of descriptors most likely.
const RETRY: Duration = Duration::from_millis(50);

/// What sandboxes with rules of names share: connections take two descriptors of the server each, and half of them are
/// for other things.
#[derive(Debug, Clone)]
pub(super) struct Room {
    all: Arc<Semaphore>,
    of_one: usize,
}

impl Room {
    pub(super) fn new() -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
        let connections =
            usize::try_from(descriptors / 4).unwrap_or(MOST_OF_ONE).clamp(16, Semaphore::MAX_PERMITS);
        Self { all: Arc::new(Semaphore::new(connections)), of_one: MOST_OF_ONE.min(connections / 4) }
    }
}

/// What may pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rules {
    /// Names in small letters: `name`, `*.name` for all below it, `*` for all there are.
    pub(super) names: Vec<String>,
    /// Who tells their addresses.
    pub(super) servers: Servers,
}

impl Rules {
    fn allow(&self, host: &str) -> bool {
        self.names.iter().any(|pattern| match pattern.strip_prefix('*') {
            Some("") => true,
            Some(below) => host.len() > below.len() && host.ends_with(below),
            None => host == pattern,
        })
    }
}

/// The gate of one sandbox. Dropping it closes it and cuts what passes.
#[derive(Debug)]
pub(super) struct Gate {
    port: u16,
    rules: watch::Sender<Rules>,
    _open: DropGuard,
}

impl Gate {
    /// Opens one at `address`, the host's, for the sandbox at `guest`. Needs a running tokio runtime.
    pub(super) async fn open(
        address: Ipv4Addr,
        guest: Ipv4Addr,
        rules: Rules,
        room: &Room,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0)).await?;
        let port = listener.local_addr()?.port();
        let (rules, given) = watch::channel(rules);
        let closing = CancellationToken::new();
        let serving = serve(listener, guest, given, room.clone(), closing.clone());
        tokio::spawn(closing.clone().run_until_cancelled_owned(serving));
        Ok(Self { port, rules, _open: closing.drop_guard() })
    }

    /// Where it listens.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Replaces the rules; connections to hosts that are no longer allowed are cut.
    pub(super) fn set(&self, rules: Rules) {
        self.rules.send_replace(rules);
    }
}

async fn serve(
    listener: TcpListener,
    guest: Ipv4Addr,
    rules: watch::Receiver<Rules>,
    room: Room,
    closing: CancellationToken,
) {
    let own = Arc::new(Semaphore::new(room.of_one));
    while let Ok(place) = own.clone().acquire_owned().await {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection out of a sandbox could not be accepted");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        // Others on the host can reach this address too.
        if peer.ip() != guest {
            continue;
        }
        let Ok(shared) = room.all.clone().try_acquire_owned() else {
            tracing::warn!(%guest, "too many connections by name in all: one was refused");
            reset(&stream);
            continue;
        };
        let rules = rules.clone();
        tokio::spawn(closing.clone().run_until_cancelled_owned(async move {
            let _places = (place, shared);
            let mut stream = stream;
            if let Err(error) = pass(&mut stream, rules).await {
                tracing::debug!(%guest, %error, "a connection out of a sandbox was refused or broke");
                reset(&stream);
            }
        }));
    }
}

/// Has the other side see at once that nothing comes of it.
fn reset(stream: &TcpStream) {
    // Otherwise it sees an ordinary end.
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
}

async fn pass(inside: &mut TcpStream, mut rules: watch::Receiver<Rules>) -> io::Result<()> {
    let port = ip_original_dst(&*inside)?.port();
    let (host, opening) = timeout(OPENING_DEADLINE, read_opening(inside)).await??;
    let servers = {
        let rules = rules.borrow();
        if !rules.allow(&host) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("`{host}` is not allowed")));
        }
        rules.servers.clone()
    };
    let mut outside = connect(&servers.resolve(&host).await?, port).await?;
    for stream in [&*inside, &outside] {
        stream.set_nodelay(true)?;
        // Nobody else notices a peer that is gone for good.
        set_socket_keepalive(stream, true)?;
    }
    let copied = async {
        outside.write_all(&opening).await?;
        drop(opening);
        copy_bidirectional_with_sizes(inside, &mut outside, BUFFER, BUFFER).await
    };
    tokio::select! {
        copied = copied => copied.map(drop),
        _ = rules.wait_for(|rules| !rules.allow(&host)) => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("`{host}` is not allowed any more")))
        }
    }
}

/// The host a connection wants, and what has been read of it so far.
async fn read_opening(stream: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    for _ in 0..MOST_PIECES {
        let room = (MOST_OPENING - bytes.len()) as u64;
        if (&mut *stream).take(room).read_buf(&mut bytes).await? == 0 {
            break;
        }
        match Opening::of(&bytes) {
            Opening::Host(host) => return Ok((host, bytes)),
            Opening::Incomplete => {}
            Opening::Nameless => break,
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "it names no host"))
}

/// Connects to the first address that answers. The firewall keeps these sockets from where sandboxes must not go.
async fn connect(addresses: &[Ipv4Addr], port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses.iter().take(MOST_TRIED) {
        let socket = TcpSocket::new_v4()?;
        sys::mark(socket.as_fd(), super::GUARDED_MARK)?;
        match timeout(CONNECT_DEADLINE, socket.connect(SocketAddr::from((*address, port)))).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_what_they_say() {
        let allow = |names: &[&str], host: &str| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            Rules { names, servers: Servers::Trusted(vec![]) }.allow(host)
        };
        assert!(allow(&["example.com"], "example.com"));
        assert!(!allow(&["example.com"], "www.example.com"));
        assert!(!allow(&["example.com"], "badexample.com"));
        assert!(allow(&["*.example.com"], "www.example.com") && allow(&["*.example.com"], "a.b.example.com"));
        assert!(!allow(&["*.example.com"], "example.com") && !allow(&["*.example.com"], "badexample.com"));
        assert!(allow(&["*"], "anything.there.is"));
        assert!(!allow(&[], "example.com"));
    }
}
