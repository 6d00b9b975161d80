//! Connections to the ports of one sandbox: how many there may be, and those that are kept for a while when they are idle, so
//! that a request does not pay for a dial. A service may keep its end open for ever, so the server closes its own.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::EXPECT;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use sandcove_isolate::descriptor_limit;
use sandcove_wire::boot::{AGENT_PORT, INTERPRETER_PORT};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::connection::{Protocol, SandboxConnection};

/// How long the rest of a request that was answered early is read and discarded.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Idle connections that are kept, to all ports together.
const MAX_IDLE: usize = 32;
/// Time for which an idle connection is kept.
const MAX_IDLE_TIME: Duration = Duration::from_secs(10);
/// Maximum number of connections in use to the services of a sandbox, and again to its agent and interpreter.
const MAX_IN_USE: usize = 1024;

/// Connections in use, to all sandboxes together: an eighth of the descriptors that this process may have.
static ALL_IN_USE: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new((descriptor_limit() / 8).max(64))));

/// The permission to use one connection to a sandbox, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    _of_sandbox: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// The number of connections to one sandbox that may be in use.
#[derive(Debug)]
pub(crate) struct ConnectionBudget {
    services: Arc<Semaphore>,
    /// Visitors of a service must not keep the owner from the agent.
    control: Arc<Semaphore>,
}

impl Default for ConnectionBudget {
    fn default() -> Self {
        let budget = || Arc::new(Semaphore::new(Self::max()));
        Self { services: budget(), control: budget() }
    }
}

impl ConnectionBudget {
    /// Takes the permission for a connection to `port`, if there is one left.
    pub(crate) fn take(&self, port: u16) -> Option<ConnectionPermit> {
        let of_sandbox = match port {
            AGENT_PORT | INTERPRETER_PORT => &self.control,
            _ => &self.services,
        };
        let of_sandbox = of_sandbox.clone().try_acquire_owned().ok()?;
        let of_all = ALL_IN_USE.clone().try_acquire_owned().ok()?;
        Some(ConnectionPermit { _of_sandbox: of_sandbox, _of_all: of_all })
    }

    /// Maximum number of connections in use; fewer where the limit of open files is low.
    fn max() -> usize {
        (descriptor_limit() / 32).clamp(32, MAX_IN_USE)
    }
}

/// Idle connections, the one that has been idle for longest first.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPool {
    idle: Arc<Mutex<IdleConnections>>,
}

#[derive(Debug, Default)]
struct IdleConnections {
    connections: Vec<IdleConnection>,
    /// Whether a task closes connections when their time is over.
    is_swept: bool,
}

#[derive(Debug)]
struct IdleConnection {
    port: u16,
    since: Instant,
    connection: SandboxConnection,
}

impl ConnectionPool {
    /// Takes a connection that accepts a request at once. A connection whose last exchange has not quite ended stays.
    pub(crate) fn take(&self, port: u16, protocol: Protocol) -> Option<SandboxConnection> {
        let mut idle = self.lock();
        idle.connections.retain(|idle| !idle.connection.is_closed());
        let ready = idle.connections.iter().rposition(|idle| {
            idle.port == port && idle.connection.protocol() == protocol && idle.connection.is_ready()
        })?;
        Some(idle.connections.remove(ready).connection)
    }

    /// Keeps a connection whose exchange has ended; when there are too many, the one that has been idle for longest is closed.
    pub(crate) fn put(&self, port: u16, connection: SandboxConnection) {
        if connection.is_closed() {
            return;
        }
        let mut idle = self.lock();
        idle.connections.retain(|idle| !idle.connection.is_closed());
        if idle.connections.len() >= MAX_IDLE {
            idle.connections.remove(0);
        }
        idle.connections.push(IdleConnection { port, since: Instant::now(), connection });
        if !std::mem::replace(&mut idle.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.idle)));
        }
    }

    /// Closes every idle connection.
    pub(super) fn clear(&self) {
        self.lock().connections.clear();
    }

    fn lock(&self) -> MutexGuard<'_, IdleConnections> {
        lock(&self.idle)
    }
}

/// Closes connections when their time is over, until none is left.
async fn sweep(idle: Weak<Mutex<IdleConnections>>) {
    loop {
        let oldest = {
            let Some(idle) = idle.upgrade() else { return };
            let mut idle = lock(&idle);
            idle.connections.retain(|idle| idle.since.elapsed() < MAX_IDLE_TIME);
            let Some(oldest) = idle.connections.first() else {
                idle.is_swept = false;
                return;
            };
            oldest.since
        };
        tokio::time::sleep_until(oldest + MAX_IDLE_TIME).await;
    }
}

fn lock(idle: &Mutex<IdleConnections>) -> MutexGuard<'_, IdleConnections> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body of a request; records whether it was read to its end. When it is dropped before, the rest is read and discarded: a
/// client that is still sending when the connection is closed sees a broken connection and not the answer.
pub(crate) struct Upload {
    inner: Option<Incoming>,
    sent: Sent,
    /// Whether the client sends the body only when it is asked for, which the first read does.
    waits: bool,
}

/// Whether a request has been sent to its end. A service that answers before that closes the connection after its
/// answer, and nothing says so until the next request on it has failed.
#[derive(Clone, Default)]
pub(crate) struct Sent(Arc<AtomicBool>);

impl Upload {
    /// Takes the body of `request`.
    pub(crate) fn of(request: Request<Incoming>) -> Request<Self> {
        let waits = request.headers().contains_key(EXPECT);
        request.map(|inner| {
            let upload = Self { inner: Some(inner), sent: Sent::default(), waits };
            upload.note_end();
            upload
        })
    }

    /// The body of a request without one.
    #[cfg(test)]
    pub(super) fn empty() -> Self {
        Self { inner: None, sent: Sent::default(), waits: false }
    }

    /// The record of whether this body was sent to its end; the body itself goes to the connection.
    pub(crate) fn sent(&self) -> Sent {
        self.sent.clone()
    }

    fn note_end(&self) {
        if self.is_end_stream() {
            self.sent.0.store(true, Ordering::Release);
        }
    }
}

impl Sent {
    /// Whether the request was sent to its end.
    pub(crate) fn is_whole(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(mut body) = self.inner.take()
            && !self.waits
            && !body.is_end_stream()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(tokio::time::timeout(DRAIN_TIMEOUT, async move {
                while let Some(Ok(_)) = body.frame().await {}
            }));
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        this.waits = false;
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        let frame = Pin::new(inner).poll_frame(context);
        match &frame {
            // What broke off was not sent to its end, and there is no rest to read.
            Poll::Ready(Some(Err(_))) => this.inner = None,
            Poll::Ready(Some(Ok(_))) => this.note_end(),
            // Only now is the end of a request known that came in chunks.
            Poll::Ready(None) => this.sent.0.store(true, Ordering::Release),
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
