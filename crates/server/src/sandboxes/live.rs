//! The way into a running sandbox, for as long as it runs.

use sandcove_isolate::Handle;
use tokio_util::sync::CancellationToken;

use crate::proxy::pool::Pool;

/// One session of a running sandbox. Traffic holds it; its end cuts every stream that still flows.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) handle: HandleRef,
    /// Cancelled when the sandbox is paused or killed.
    pub(crate) ended: CancellationToken,
    /// Connections to its ports that wait for the next request.
    pub(crate) pool: Pool,
}

/// A [`Handle`] that prints as its id.
#[derive(Clone)]
pub(crate) struct HandleRef(pub(crate) Handle);

impl std::fmt::Debug for HandleRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({})", self.0.id())
    }
}

impl Live {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle: HandleRef(handle), ended: CancellationToken::new(), pool: Pool::default() }
    }

    /// Cuts every stream and forgets idle connections.
    pub(crate) fn end(&self) {
        self.ended.cancel();
        self.pool.clear();
    }
}
