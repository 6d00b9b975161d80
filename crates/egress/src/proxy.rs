//! The egress proxy of a sandbox. TCP connections that no address rule covers are redirected to it. The proxy reads the requested host
//! from the first bytes, checks it against the rules, resolves it, and connects to the result. The address that the sandbox dialled does not
//! count, unless the host has no rules and the address is allowed. Requests to hosts with rules for headers are intercepted.
//!
//! Each sandbox has a proxy of its own, at the host's end of its network pair, so connections need no further attribution.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{ip_original_dst, set_socket_keepalive, set_socket_linger};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::counted::{Bytes, Counted};
use crate::headers::{self, Keys};
use crate::intercept::{Interception, Transform};
use crate::log::{Connection, Entry, Log};
use crate::outside::{self, Outside};
use crate::requested_host::{RequestedHost, is_tls};
use crate::resolver::resolve;
use crate::rules::Rules;
use crate::sockets::Sockets;
use crate::socks::Target;

/// Timeout for a connection to name its host.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes in which a connection names its host.
const MAX_REQUEST: usize = 32 << 10;
/// Maximum number of pieces in which these bytes arrive.
const MAX_PIECES: usize = 1024;
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
    pub(crate) keys: Keys,
    pub(crate) interception: Interception,
}

/// The egress proxy of one sandbox. Dropping it closes the listener and all connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    rules: watch::Sender<Rules>,
    log: Log,
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
        let (closing, log) = (CancellationToken::new(), Log::default());
        let sandbox = Sandbox { guest, rules: given, log: log.clone(), context };
        let serving = sandbox.serve(listener, limits.clone(), closing.clone());
        tokio::spawn(closing.clone().run_until_cancelled_owned(serving));
        Self { rules, log, _open: closing.drop_guard() }
    }

    /// Replaces the rules and closes connections to hosts that are no longer allowed.
    pub(crate) fn set(&self, rules: Rules) {
        self.rules.send_replace(rules);
    }

    /// The last connections of the sandbox, the oldest first.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        self.log.connections()
    }
}

/// The sandbox of a proxy.
#[derive(Clone)]
struct Sandbox {
    guest: Ipv4Addr,
    rules: watch::Receiver<Rules>,
    log: Log,
    context: Arc<Context>,
}

impl Sandbox {
    async fn serve(self, listener: TcpListener, limits: ConnectionLimits, closing: CancellationToken) {
        let (own, guest) = (Arc::new(Semaphore::new(limits.per_sandbox)), self.guest);
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
            let sandbox = self.clone();
            tokio::spawn(closing.clone().run_until_cancelled_owned(async move {
                let _permits = (permit, total_permit);
                if let Err(error) = sandbox.pass(stream).await {
                    tracing::debug!(%guest, %error, "an egress connection was refused or failed");
                }
            }));
        }
    }

    /// Proxies one connection.
    async fn pass(self, inside: TcpStream) -> io::Result<()> {
        let dialled = ip_original_dst(&inside)?;
        let bytes = Bytes::default();
        let entry = self.log.begin(dialled, bytes.clone());
        let passed = self.pass_logged(Counted::new(inside, bytes), dialled, &entry).await;
        if let Err(error) = &passed {
            entry.update(|connection| connection.error = Some(error.to_string()));
        }
        passed
    }

    async fn pass_logged(
        mut self,
        mut inside: Counted<TcpStream>,
        dialled: SocketAddrV4,
        entry: &Entry,
    ) -> io::Result<()> {
        let found = match self.find(&mut inside, dialled, entry).await {
            Ok(found) => found,
            Err(error) => {
                reset(inside.stream());
                return Err(error);
            }
        };
        inside.stream().set_nodelay(true)?;
        set_socket_keepalive(inside.stream(), true)?;
        let Destination { host, read, mut outside, rules: before } = found;
        let is_kept = |rules: &Rules| is_kept(&before, rules, host.as_deref(), *dialled.ip());
        let changed =
            || io::Error::new(io::ErrorKind::PermissionDenied, "the rules for this connection have changed");
        if let Some((host, rule)) = host.as_ref().and_then(|host| Some((host, before.of_host(host)?))) {
            let (rule, rules, context) = (rule.clone(), before.clone(), self.context.clone());
            let headers = Box::new(move || headers::of_rule(&rule, &rules, &context.keys));
            let transform = Transform { host: host.clone(), headers };
            let is_tls = is_tls(&read);
            return tokio::select! {
                passed = self.context.interception.pass(inside, read, outside, is_tls, transform) => passed,
                _ = self.rules.wait_for(|rules| !is_kept(rules)) => Err(changed()),
            };
        }
        let copied = async {
            outside.write_all(&read).await?;
            drop(read);
            copy_bidirectional_with_sizes(&mut inside, &mut outside, BUFFER, BUFFER).await
        };
        let done = tokio::select! {
            copied = copied => copied.map(drop),
            _ = self.rules.wait_for(|rules| !is_kept(rules)) => Err(changed()),
        };
        if done.is_err() {
            reset(inside.stream());
        }
        done
    }

    /// Reads what a connection asks for, and connects to it.
    async fn find(
        &self,
        inside: &mut Counted<TcpStream>,
        dialled: SocketAddrV4,
        entry: &Entry,
    ) -> io::Result<Destination> {
        let reads_names = self.rules.borrow().reads_names(dialled.port());
        let (host, read) = if reads_names { read_request(inside).await? } else { (None, Vec::new()) };
        let rules = self.rules.borrow().clone();
        entry.update(|connection| connection.host.clone_from(&host));
        let route = self.route(host.as_deref(), *dialled.ip(), &rules, entry).await;
        let is_denied = route.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        entry.update(|connection| {
            connection.is_allowed = !is_denied;
            connection.is_proxied = rules.upstream.is_some();
            connection.gets_headers = host.as_deref().is_some_and(|host| rules.of_host(host).is_some());
        });
        let connected = self.connect(&route?, dialled.port(), &rules).await;
        if let (Err(error), Some(_)) = (&connected, &rules.upstream) {
            explain(inside, &read, error).await;
        }
        Ok(Destination { host, read, outside: connected?, rules })
    }

    /// Decides whether a connection is allowed, and where it goes. The deciding entry goes into the log.
    async fn route(
        &self,
        host: Option<&str>,
        dialled: Ipv4Addr,
        rules: &Rules,
        entry: &Entry,
    ) -> io::Result<Route> {
        let decided = |member: &str, text: &str| {
            entry.update(|connection| connection.rule = Some((member.to_owned(), text.to_owned())));
        };
        let denied =
            |what: &str| io::Error::new(io::ErrorKind::PermissionDenied, format!("`{what}` is not allowed"));
        let sockets = &self.context.sockets;
        let is_proxied = rules.upstream.is_some();
        if let Some((host, entry)) = host.and_then(|host| Some((host, rules.name_entry(host)?))) {
            decided("allowOut", entry);
            let addresses = resolve(host, &rules.servers, sockets).await?;
            return Route::to(host, addresses, |address| !rules.is_walled_off(address));
        }
        match rules.addresses.decide(dialled) {
            Ok(Some(entry)) => decided("allowOut", entry),
            Ok(None) => {}
            Err(entry) => {
                decided("denyOut", entry);
                return Err(denied(host.unwrap_or("a connection that names no host")));
            }
        }
        let is_open = |address| !rules.is_walled_off(address) && rules.addresses.allow_address(address);
        match host {
            // Headers go to what the name stands for, and not to where the sandbox says that it is.
            Some(host) if rules.of_host(host).is_some() => {
                Route::to(host, resolve(host, &rules.servers, sockets).await?, is_open)
            }
            // A proxy looks the name up again, so that it may only get one that stands for the address.
            Some(host) if is_proxied => {
                let addresses = resolve(host, &rules.servers, sockets).await.unwrap_or_default();
                let is_honest = addresses.contains(&dialled);
                Ok(Route { name: is_honest.then(|| host.to_owned()), addresses: vec![dialled] })
            }
            _ => Ok(Route { name: None, addresses: vec![dialled] }),
        }
    }

    async fn connect(&self, route: &Route, port: u16, rules: &Rules) -> io::Result<Outside> {
        let Context { sockets, keys, interception } = &*self.context;
        let Some(upstream) = &rules.upstream else {
            return Ok(Box::new(outside::direct(&route.addresses, port, sockets).await?));
        };
        let target = match (&route.name, route.addresses.first()) {
            (Some(name), _) => Target::Name(name),
            (None, Some(address)) => Target::Address(*address),
            (None, None) => return Err(io::ErrorKind::NotFound.into()),
        };
        let (resolvers, roots) = (&rules.resolvers, interception.roots());
        outside::through(upstream, resolvers, target, port, sockets, &keys.secrets, roots).await
    }
}

/// The way that an allowed connection takes, directly or by a proxy.
struct Route {
    /// Name for a proxy to look up.
    name: Option<String>,
    /// Addresses of the host, one of which a direct connection goes to.
    addresses: Vec<Ipv4Addr>,
}

impl Route {
    /// The route to a host by its name, as far as its addresses are open.
    fn to(host: &str, mut addresses: Vec<Ipv4Addr>, is_open: impl Fn(Ipv4Addr) -> bool) -> io::Result<Self> {
        addresses.retain(|address| is_open(*address));
        if addresses.is_empty() {
            let text = format!("`{host}` has no address that may be reached");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(Self { name: Some(host.to_owned()), addresses })
    }
}

/// Tells the client of plain HTTP why there is no connection. Others see that it is reset.
async fn explain(inside: &mut Counted<TcpStream>, read: &[u8], error: &io::Error) {
    if read.is_empty() || is_tls(read) || RequestedHost::read(read) == RequestedHost::Unnamed {
        return;
    }
    let text = format!("{error}\n");
    let head = "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close";
    let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{text}", text.len());
    // Who has gone meanwhile needs no explanation.
    let _ = inside.write_all(answer.as_bytes()).await;
    let _ = inside.shutdown().await;
    // The connection is reset next, which would take the answer from a client that has not read it.
    let mut rest = [0; 1024];
    let reading = async { while inside.read(&mut rest).await.is_ok_and(|count| count > 0) {} };
    let _ = timeout(REQUEST_TIMEOUT, reading).await;
}

/// Resets the connection when it is dropped, so that the other side notices a refusal at once.
fn reset(stream: &TcpStream) {
    // Without this, the other side sees an ordinary end.
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
}

/// The destination that a connection of a sandbox asks for.
struct Destination {
    /// The host that the connection names.
    host: Option<String>,
    /// Bytes that have been read already.
    read: Vec<u8>,
    outside: Outside,
    /// The rules that it was found by.
    rules: Rules,
}

/// Whether a connection may go on when the rules change from `before` to `rules`.
fn is_kept(before: &Rules, rules: &Rules, host: Option<&str>, dialled: Ipv4Addr) -> bool {
    let is_allowed =
        host.is_some_and(|host| rules.name_entry(host).is_some()) || rules.addresses.allow_address(dialled);
    let rule = |rules: &Rules| host.and_then(|host| rules.of_host(host)).cloned();
    let (old, new) = (rule(before), rule(rules));
    let has_same_values = old.is_none() || before.secrets == rules.secrets;
    is_allowed && old == new && has_same_values && before.upstream == rules.upstream
}

/// Reads the requested host, if the connection names one; returns it with the bytes read so far.
async fn read_request(stream: &mut Counted<TcpStream>) -> io::Result<(Option<String>, Vec<u8>)> {
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
