//! Connections to the ports of one sandbox: how many there may be, and those that are kept for a while when they are idle, so
//! that a request does not pay for a dial. A service may keep its end open for ever, so the server closes its own.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::EXPECT;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use sandcove_wire::boot::{AGENT_PORT, INTERPRETER_PORT};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use uuid::Uuid;

use super::connection::{Protocol, SandboxConnection};
use crate::fair::TeamShares;

/// How long the rest of a request that was answered early is read and discarded.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Idle connections that are kept, to all ports together.
const MAX_IDLE: usize = 32;
/// Time for which an idle connection is kept.
const MAX_IDLE_TIME: Duration = Duration::from_secs(10);
/// Maximum number of connections in use to the services of a sandbox, and again to its agent and interpreter.
const MAX_IN_USE: usize = 1024;

/// The permission to use one connection to a sandbox, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(
    #[expect(dead_code, reason = "held until it is dropped")] [OwnedSemaphorePermit; 3],
);

/// The numbers of connections to all sandboxes that may be in use.
#[derive(Debug)]
pub(super) struct ConnectionBudgets {
    all: Share,
    /// Of each team at most half to services, so that no team keeps the others from their sandboxes.
    teams: TeamShares,
    /// Of each team at most a quarter to agents and interpreters, which visitors of its services must not use up.
    control: TeamShares,
}

/// The number of connections to one sandbox that may be in use.
#[derive(Debug)]
pub(crate) struct ConnectionBudget {
    services: Share,
    /// Visitors of a service must not keep the owner from the agent.
    control: Share,
    services_of_team: Share,
    control_of_team: Share,
    all: Share,
}

/// A number of connections that may be in use.
#[derive(Debug, Clone)]
struct Share {
    max: usize,
    free: Arc<Semaphore>,
}

impl Share {
    fn new(max: usize) -> Self {
        Self { max, free: Arc::new(Semaphore::new(max)) }
    }

    fn take(&self) -> Result<OwnedSemaphorePermit, usize> {
        self.free.clone().try_acquire_owned().map_err(|_| self.max)
    }
}

impl ConnectionBudgets {
    /// An eighth of the `descriptors` that this process may have is for connections to sandboxes.
    pub(super) fn new(descriptors: usize) -> Self {
        let all = (descriptors / 8).max(64);
        Self { all: Share::new(all), teams: TeamShares::new(all / 2), control: TeamShares::new(all / 4) }
    }

    /// The budget of one more sandbox of `team`.
    pub(super) fn of(&self, team: Uuid) -> ConnectionBudget {
        let services_of_team = Share { max: self.all.max / 2, free: self.teams.of(team) };
        let control_of_team = Share { max: self.all.max / 4, free: self.control.of(team) };
        // Fewer where the limit of open files is low.
        let of_sandbox = || Share::new((self.all.max / 4).clamp(32, MAX_IN_USE));
        ConnectionBudget {
            services: of_sandbox(),
            control: of_sandbox(),
            services_of_team,
            control_of_team,
            all: self.all.clone(),
        }
    }
}

impl ConnectionBudget {
    /// Takes the permission for a connection to `port`.
    ///
    /// # Errors
    /// If the sandbox, its team or all sandboxes use as many as they may; the error is that number.
    pub(crate) fn take(&self, port: u16) -> Result<ConnectionPermit, usize> {
        let (of_sandbox, of_team) = match port {
            AGENT_PORT | INTERPRETER_PORT => (&self.control, &self.control_of_team),
            _ => (&self.services, &self.services_of_team),
        };
        Ok(ConnectionPermit([of_sandbox.take()?, of_team.take()?, self.all.take()?]))
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
    pub(crate) fn empty() -> Self {
        let upload = Self { inner: None, sent: Sent::default(), waits: false };
        upload.note_end();
        upload
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_team_takes_at_most_half_of_all_connections() {
        let budgets = ConnectionBudgets::new(1024);
        let (team, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let sandboxes: Vec<_> = (0..4).map(|_| budgets.of(team)).collect();
        let mut taken = Vec::new();
        for sandbox in &sandboxes[..2] {
            taken.extend((0..32).map(|_| sandbox.take(8000).unwrap()));
            assert_eq!(sandbox.take(8000).unwrap_err(), 32);
        }
        assert_eq!(sandboxes[2].take(8000).unwrap_err(), 64, "the team's");
        assert!(sandboxes[2].take(AGENT_PORT).is_ok(), "visitors do not keep the owner from the agent");
        let others: Vec<_> = [other, Uuid::from_u128(3)].map(|team| budgets.of(team)).into();
        taken.extend((0..32).map(|_| others[0].take(8000).unwrap()));
        taken.extend((0..32).map(|_| others[0].take(AGENT_PORT).unwrap()));
        assert_eq!(others[1].take(8000).unwrap_err(), 128, "all");
        drop(taken.remove(0));
        assert!(others[1].take(8000).is_ok() && sandboxes[3].take(8000).is_ok());
    }
}
