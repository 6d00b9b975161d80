//! The egress proxy of a sandbox whose network policy has host names. TCP connections that no address rule covers are
//! redirected to it. The proxy reads the requested host from the first bytes, checks it against the policy, resolves
//! it, and connects to the result. The address that the sandbox dialled does not count.
//!
//! Each sandbox has a proxy of its own, at the host's end of its network pair, so connections need no further attribution.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{ip_original_dst, set_socket_keepalive, set_socket_linger};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::requested_host::RequestedHost;
use super::resolver::Servers;
use super::sockets::{descriptor_limit, guard};

/// Timeout for a connection to name its host.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes in which a connection names its host.
const MAX_REQUEST: usize = 32 << 10;
/// Maximum number of pieces in which these bytes arrive.
const MAX_PIECES: usize = 1024;
/// Timeout for connecting to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of addresses to try.
const MAX_ATTEMPTS: usize = 4;
/// Size of the copy buffer in each direction, bytes.
const BUFFER: usize = 16 << 10;
/// Maximum number of open connections of one sandbox. Further ones wait.
const MAX_PER_SANDBOX: usize = 256;
/// Pause after a connection could not be accepted, most likely for lack of descriptors.
const RETRY: Duration = Duration::from_millis(50);

/// Limits on the open connections of all egress proxies. A connection takes two descriptors of the server; half of all
/// descriptors are for other things.
#[derive(Debug, Clone)]
pub(super) struct ConnectionLimits {
    total: Arc<Semaphore>,
    per_sandbox: usize,
}

impl ConnectionLimits {
    pub(super) fn new() -> Self {
        let connections = (descriptor_limit() / 4).clamp(16, Semaphore::MAX_PERMITS);
        Self {
            total: Arc::new(Semaphore::new(connections)),
            per_sandbox: MAX_PER_SANDBOX.min(connections / 4),
        }
    }
}

/// Rules of an egress proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EgressRules {
    /// Allowed host names, in lowercase: `name`, `*.name` for its subdomains, `*` for all.
    pub(super) names: Vec<String>,
    /// Name servers that resolve them.
    pub(super) servers: Servers,
}

impl EgressRules {
    fn allow(&self, host: &str) -> bool {
        self.names.iter().any(|pattern| match pattern.strip_prefix('*') {
            Some("") => true,
            Some(below) => host.len() > below.len() && host.ends_with(below),
            None => host == pattern,
        })
    }
}

/// The egress proxy of one sandbox. Dropping it closes the listener and all connections.
#[derive(Debug)]
pub(super) struct EgressProxy {
    port: u16,
    rules: watch::Sender<EgressRules>,
    _open: DropGuard,
}

impl EgressProxy {
    /// Opens the proxy at the host's `address` for the sandbox at `guest`. Needs a running tokio runtime.
    pub(super) async fn open(
        address: Ipv4Addr,
        guest: Ipv4Addr,
        rules: EgressRules,
        limits: &ConnectionLimits,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0)).await?;
        let port = listener.local_addr()?.port();
        let (rules, given) = watch::channel(rules);
        let closing = CancellationToken::new();
        let serving = serve(listener, guest, given, limits.clone(), closing.clone());
        tokio::spawn(closing.clone().run_until_cancelled_owned(serving));
        Ok(Self { port, rules, _open: closing.drop_guard() })
    }

    /// Port of the listener.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Replaces the rules and closes connections to hosts that are no longer allowed.
    pub(super) fn set(&self, rules: EgressRules) {
        self.rules.send_replace(rules);
    }
}

async fn serve(
    listener: TcpListener,
    guest: Ipv4Addr,
    rules: watch::Receiver<EgressRules>,
    limits: ConnectionLimits,
    closing: CancellationToken,
) {
    let own = Arc::new(Semaphore::new(limits.per_sandbox));
    while let Ok(permit) = own.clone().acquire_owned().await {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection of a sandbox");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        // Processes of the host can reach this address too.
        if peer.ip() != guest {
            continue;
        }
        let Ok(total_permit) = limits.total.clone().try_acquire_owned() else {
            tracing::warn!(%guest, "too many egress connections: refused one");
            reset(&stream);
            continue;
        };
        let rules = rules.clone();
        tokio::spawn(closing.clone().run_until_cancelled_owned(async move {
            let _permits = (permit, total_permit);
            let mut stream = stream;
            if let Err(error) = pass(&mut stream, rules).await {
                tracing::debug!(%guest, %error, "an egress connection was refused or failed");
                reset(&stream);
            }
        }));
    }
}

/// Resets the connection when it is dropped, so that the other side notices a refusal at once.
fn reset(stream: &TcpStream) {
    // Without this, the other side sees an ordinary end.
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
}

/// Proxies one connection.
async fn pass(inside: &mut TcpStream, mut rules: watch::Receiver<EgressRules>) -> io::Result<()> {
    let port = ip_original_dst(&*inside)?.port();
    let (host, request) = timeout(REQUEST_TIMEOUT, read_request(inside)).await??;
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
        // Without keep-alives, a peer that has disappeared is not noticed.
        set_socket_keepalive(stream, true)?;
    }
    let copied = async {
        outside.write_all(&request).await?;
        drop(request);
        copy_bidirectional_with_sizes(inside, &mut outside, BUFFER, BUFFER).await
    };
    tokio::select! {
        copied = copied => copied.map(drop),
        _ = rules.wait_for(|rules| !rules.allow(&host)) => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("`{host}` is no longer allowed")))
        }
    }
}

/// Reads the requested host; returns it with the bytes read so far.
async fn read_request(stream: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    for _ in 0..MAX_PIECES {
        let left = (MAX_REQUEST - bytes.len()) as u64;
        if (&mut *stream).take(left).read_buf(&mut bytes).await? == 0 {
            break;
        }
        match RequestedHost::read(&bytes) {
            RequestedHost::Name(host) => return Ok((host, bytes)),
            RequestedHost::Incomplete => {}
            RequestedHost::Unnamed => break,
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the connection names no host"))
}

/// Connects to the first address that answers. The firewall refuses these sockets the addresses that sandboxes must not
/// reach.
async fn connect(addresses: &[Ipv4Addr], port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses.iter().take(MAX_ATTEMPTS) {
        let socket = TcpSocket::new_v4()?;
        guard(&socket)?;
        match timeout(CONNECT_TIMEOUT, socket.connect(SocketAddr::from((*address, port)))).await {
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
            EgressRules { names, servers: Servers::Trusted(vec![]) }.allow(host)
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
