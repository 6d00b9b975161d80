//! The way into a running sandbox, for as long as it runs.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandcove_host::Handle;
use sandcove_legacy::Quota;
use tokio_util::sync::CancellationToken;

use super::connections::{ConnectionBudget, ConnectionPool};

/// A running sandbox as traffic uses it, from its start or resume to its next pause or end, which cuts every stream that still flows.
#[derive(Debug)]
pub(crate) struct LiveSession {
    pub(crate) handle: HandleRef,
    /// Cancelled when the sandbox is paused or killed.
    pub(crate) ended: CancellationToken,
    /// Idle connections to the sandbox's ports.
    pub(crate) pool: ConnectionPool,
    /// Permissions to use connections.
    pub(crate) budget: ConnectionBudget,
    /// Limits of clients of the first generation.
    pub(crate) legacy: Quota,
    /// Time of the agent's last answer to a client, or of the start.
    heard: Mutex<Instant>,
}

/// A [`Handle`] that prints as its id.
#[derive(Clone)]
pub(crate) struct HandleRef(pub(crate) Handle);

impl std::fmt::Debug for HandleRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({})", self.0.id())
    }
}

impl LiveSession {
    pub(super) fn new(handle: Handle, budget: ConnectionBudget) -> Self {
        Self {
            handle: HandleRef(handle),
            ended: CancellationToken::new(),
            pool: ConnectionPool::default(),
            budget,
            legacy: Quota::default(),
            heard: Mutex::new(Instant::now()),
        }
    }

    /// Notes that the agent has answered a client.
    pub(crate) fn hear_agent(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether the agent has started, or answered a client, within the last `duration`.
    pub(crate) fn agent_was_heard_within(&self, duration: Duration) -> bool {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < duration
    }

    /// Cuts every stream and closes idle connections.
    pub(crate) fn end(&self) {
        self.ended.cancel();
        self.pool.clear();
    }
}
