//! The egress proxy of a sandbox. TCP connections that no address rule covers are redirected to it. The proxy reads the requested host
//! from the first bytes, checks it against the rules, resolves it, and connects to the result. The address that the sandbox dialled does not
//! count.
//!
//! Each sandbox has a proxy of its own, at the host's end of its network pair, so connections need no further attribution.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{ip_original_dst, set_socket_keepalive, set_socket_linger};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::message::Rules;
use crate::requested_host::RequestedHost;
use crate::resolver::resolve;
use crate::sockets::Sockets;

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
/// Number of descriptors where there is no limit.
const UNLIMITED: usize = 1 << 20;
/// Pause after a connection could not be accepted, most likely for lack of descriptors.
const RETRY: Duration = Duration::from_millis(50);

/// Limits on the open connections of all egress proxies. A connection takes two descriptors; half of all descriptors are for listeners and
/// sockets to name servers.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionLimits {
    total: Arc<Semaphore>,
    per_sandbox: usize,
}

impl ConnectionLimits {
    pub(crate) fn new() -> Self {
        let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
        let connections = (limit.unwrap_or(UNLIMITED) / 4).clamp(16, Semaphore::MAX_PERMITS);
        Self {
            total: Arc::new(Semaphore::new(connections)),
            per_sandbox: MAX_PER_SANDBOX.min(connections / 4),
        }
    }
}

/// The egress proxy of one sandbox. Dropping it closes the listener and all connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    rules: watch::Sender<Rules>,
    _open: DropGuard,
}

impl Proxy {
    /// Opens the proxy of the sandbox at `guest`.
    pub(crate) fn open(
        listener: TcpListener,
        guest: Ipv4Addr,
        rules: Rules,
        limits: &ConnectionLimits,
        sockets: Sockets,
    ) -> Self {
        let (rules, given) = watch::channel(rules);
        let closing = CancellationToken::new();
        let serving = serve(listener, guest, given, limits.clone(), sockets, closing.clone());
        tokio::spawn(closing.clone().run_until_cancelled_owned(serving));
        Self { rules, _open: closing.drop_guard() }
    }

    /// Replaces the rules and closes connections to hosts that are no longer allowed.
    pub(crate) fn set(&self, rules: Rules) {
        self.rules.send_replace(rules);
    }
}

async fn serve(
    listener: TcpListener,
    guest: Ipv4Addr,
    rules: watch::Receiver<Rules>,
    limits: ConnectionLimits,
    sockets: Sockets,
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
        let (rules, sockets) = (rules.clone(), sockets.clone());
        tokio::spawn(closing.clone().run_until_cancelled_owned(async move {
            let _permits = (permit, total_permit);
            let mut stream = stream;
            if let Err(error) = pass(&mut stream, rules, &sockets).await {
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
async fn pass(
    inside: &mut TcpStream,
    mut rules: watch::Receiver<Rules>,
    sockets: &Sockets,
) -> io::Result<()> {
    let port = ip_original_dst(&*inside)?.port();
    let (host, request) = timeout(REQUEST_TIMEOUT, read_request(inside)).await??;
    let servers = {
        let rules = rules.borrow();
        if !rules.allow(&host) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("`{host}` is not allowed")));
        }
        rules.servers.clone()
    };
    let mut outside = connect(&resolve(&host, &servers, sockets).await?, port, sockets).await?;
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
async fn connect(addresses: &[Ipv4Addr], port: u16, sockets: &Sockets) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses.iter().take(MAX_ATTEMPTS) {
        let socket = sockets.tcp(false).await?;
        match timeout(CONNECT_TIMEOUT, socket.connect(SocketAddr::from((*address, port)))).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}
