//! The egress proxy of a sandbox. TCP connections that no address rule covers are redirected to it. The proxy reads the requested host
//! from the first bytes, checks it against the rules, resolves it, and connects to the result. The address that the sandbox dialled does not
//! count, unless the host has no rules and the address is allowed. Requests to hosts with rules for headers are intercepted.
//!
//! Each sandbox has a proxy of its own, at the host's end of its network pair, so connections need no further attribution.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{ip_original_dst, set_socket_keepalive, set_socket_linger};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::headers;
use crate::intercept::{Interception, Transform};
use crate::keyring::Keyring;
use crate::requested_host::{RequestedHost, is_tls};
use crate::resolver::resolve;
use crate::rules::Rules;
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

/// Means that all proxies share.
pub(crate) struct Context {
    pub(crate) sockets: Sockets,
    pub(crate) keys: Keyring,
    pub(crate) interception: Interception,
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
        context: Arc<Context>,
    ) -> Self {
        let (rules, given) = watch::channel(rules);
        let closing = CancellationToken::new();
        let serving = serve(listener, guest, given, limits.clone(), context, closing.clone());
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
    context: Arc<Context>,
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
        let (rules, context) = (rules.clone(), context.clone());
        tokio::spawn(closing.clone().run_until_cancelled_owned(async move {
            let _permits = (permit, total_permit);
            if let Err(error) = pass(stream, rules, &context).await {
                tracing::debug!(%guest, %error, "an egress connection was refused or failed");
            }
        }));
    }
}

/// Resets the connection when it is dropped, so that the other side notices a refusal at once.
fn reset(stream: &TcpStream) {
    // Without this, the other side sees an ordinary end.
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
}

/// Where a connection leads.
struct Destination {
    /// The host that the connection names.
    host: Option<String>,
    /// The address that the sandbox dialled.
    dialled: SocketAddrV4,
    /// Bytes that have been read already.
    read: Vec<u8>,
    outside: TcpStream,
    /// The rules that it was found by.
    rules: Rules,
}

/// Proxies one connection.
async fn pass(mut inside: TcpStream, mut rules: watch::Receiver<Rules>, context: &Context) -> io::Result<()> {
    let found = match find(&mut inside, &rules, context).await {
        Ok(found) => found,
        Err(error) => {
            reset(&inside);
            return Err(error);
        }
    };
    for stream in [&inside, &found.outside] {
        stream.set_nodelay(true)?;
        // Without keep-alives, a peer that has disappeared is not noticed.
        set_socket_keepalive(stream, true)?;
    }
    let Destination { host, dialled, read, mut outside, rules: before } = found;
    let is_kept = |rules: &Rules| is_kept(&before, rules, host.as_deref(), *dialled.ip());
    let changed =
        || io::Error::new(io::ErrorKind::PermissionDenied, "the rules for this connection have changed");
    if let Some((host, rule)) = host.as_ref().and_then(|host| Some((host, before.of_host(host)?))) {
        let headers = headers::of_rule(rule, &before, &context.keys).map_err(|error| error.to_string());
        let transform = Transform { host: host.clone(), headers };
        let is_tls = is_tls(&read);
        return tokio::select! {
            passed = context.interception.pass(inside, read, outside, is_tls, transform) => passed,
            _ = rules.wait_for(|rules| !is_kept(rules)) => Err(changed()),
        };
    }
    let copied = async {
        outside.write_all(&read).await?;
        drop(read);
        copy_bidirectional_with_sizes(&mut inside, &mut outside, BUFFER, BUFFER).await
    };
    let done = tokio::select! {
        copied = copied => copied.map(drop),
        _ = rules.wait_for(|rules| !is_kept(rules)) => Err(changed()),
    };
    if done.is_err() {
        reset(&inside);
    }
    done
}

/// Reads what a connection asks for, and connects to it.
async fn find(
    inside: &mut TcpStream,
    rules: &watch::Receiver<Rules>,
    context: &Context,
) -> io::Result<Destination> {
    let dialled = ip_original_dst(&*inside)?;
    let (host, read) = read_request(inside).await?;
    let rules = rules.borrow().clone();
    let is_open = rules.addresses.allow_address(*dialled.ip());
    let is_named = host.as_deref().is_some_and(|host| rules.allow_name(host));
    let denied =
        |what: &str| io::Error::new(io::ErrorKind::PermissionDenied, format!("`{what}` is not allowed"));
    let addresses = match &host {
        Some(host) if is_named => resolve(host, &rules.servers, &context.sockets).await?,
        // Headers go to what the name stands for, and not to where the sandbox says that it is.
        Some(host) if is_open && rules.of_host(host).is_some() => {
            let mut found = resolve(host, &rules.servers, &context.sockets).await?;
            found.retain(|address| rules.addresses.allow_address(*address));
            found
        }
        _ if is_open => vec![*dialled.ip()],
        Some(host) => return Err(denied(host)),
        None => return Err(denied("a connection that names no host")),
    };
    let outside = connect(&addresses, dialled.port(), &context.sockets).await?;
    Ok(Destination { host, dialled, read, outside, rules })
}

/// Whether a connection may go on when the rules change from `before` to `rules`.
fn is_kept(before: &Rules, rules: &Rules, host: Option<&str>, dialled: Ipv4Addr) -> bool {
    let is_allowed =
        host.is_some_and(|host| rules.allow_name(host)) || rules.addresses.allow_address(dialled);
    let rule = |rules: &Rules| host.and_then(|host| rules.of_host(host)).cloned();
    let (old, new) = (rule(before), rule(rules));
    let has_same_values = old.is_none() || before.secrets == rules.secrets;
    is_allowed && old == new && has_same_values
}

/// Reads the requested host, if the connection names one; returns it with the bytes read so far.
async fn read_request(stream: &mut TcpStream) -> io::Result<(Option<String>, Vec<u8>)> {
    let mut bytes = Vec::new();
    let reading = async {
        for _ in 0..MAX_PIECES {
            let left = (MAX_REQUEST - bytes.len()) as u64;
            if (&mut *stream).take(left).read_buf(&mut bytes).await? == 0 {
                break;
            }
            match RequestedHost::read(&bytes) {
                RequestedHost::Name(host) => return Ok(Some(host)),
                RequestedHost::Incomplete => {}
                RequestedHost::Unnamed => break,
            }
        }
        Ok::<_, io::Error>(None)
    };
    // Who says nothing may be waiting for the other side.
    let host = timeout(REQUEST_TIMEOUT, reading).await.unwrap_or(Ok(None))?;
    Ok((host, bytes))
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
