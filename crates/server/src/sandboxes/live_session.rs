//! The way into a running sandbox, for as long as it runs.

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
    pub(crate) fn new(handle: Handle) -> Self {
        Self {
            handle: HandleRef(handle),
            ended: CancellationToken::new(),
            pool: ConnectionPool::default(),
            budget: ConnectionBudget::default(),
            legacy: Quota::default(),
        }
    }

    /// Cuts every stream and closes idle connections.
    pub(crate) fn end(&self) {
        self.ended.cancel();
        self.pool.clear();
    }
}
