//! The sandbox behind the protocol, and how much of the server its clients may use.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use sandcove_client::Sandbox;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum size of a message that is always accepted, bytes.
pub(crate) const SMALL_MESSAGE: usize = 1 << 20;
/// Maximum size of a message, bytes: a file of 64 MiB in base64, and a little more.
pub(crate) const MAX_MESSAGE: usize = 96 << 20;
/// Larger messages in memory at once, of all sandboxes.
const LARGE_MESSAGES: usize = 4;
/// Larger messages in memory at once, of one sandbox.
const LARGE_MESSAGES_OF_SANDBOX: usize = 2;
/// Lists of directories that sandboxes are asked for at once, of all sandboxes: their answers may be long.
const LISTS: usize = 16;
/// Lists of directories that one sandbox is asked for at once.
const LISTS_OF_SANDBOX: usize = 2;
/// Time in which a sandbox has to answer with a list, and the client to take it. Clients wait for it at most as long.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time in which a larger message has to be received, carried out and answered. Clients wait for an answer at most as long.
const LARGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Websockets to one sandbox.
const SOCKETS: usize = 64;

static LARGE: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LARGE_MESSAGES)));

static LISTED: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LISTS)));

/// The permission to use a connection into the sandbox, until it is dropped.
pub type Permit = Box<dyn Send + Sync>;

/// The part of the limits that the clients of one sandbox share.
#[derive(Debug, Clone)]
pub struct Quota {
    sockets: Arc<Semaphore>,
    large: Arc<Semaphore>,
    lists: Arc<Semaphore>,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            sockets: Arc::new(Semaphore::new(SOCKETS)),
            large: Arc::new(Semaphore::new(LARGE_MESSAGES_OF_SANDBOX)),
            lists: Arc::new(Semaphore::new(LISTS_OF_SANDBOX)),
        }
    }
}

/// A running sandbox.
#[derive(Clone)]
pub struct Guest {
    sandbox: Sandbox,
    permits: Arc<dyn Fn() -> Option<Permit> + Send + Sync>,
    quota: Quota,
    ended: CancellationToken,
}

/// A large message may be in memory until this is dropped, which has to be before the deadline: others wait for it.
#[derive(Debug)]
pub(crate) struct LargeMessage {
    pub(crate) deadline: Instant,
    _permits: [Option<OwnedSemaphorePermit>; 2],
}

impl LargeMessage {
    async fn take(of_sandbox: &Arc<Semaphore>, of_all: &Arc<Semaphore>, timeout: Duration) -> Self {
        // These semaphores are never closed.
        let of_sandbox = of_sandbox.clone().acquire_owned().await.ok();
        let permits = [of_sandbox, of_all.clone().acquire_owned().await.ok()];
        Self { deadline: Instant::now() + timeout, _permits: permits }
    }
}

impl Guest {
    /// The sandbox that `sandbox` opens connections into, each with a permit of `permits`, until `ended` is cancelled.
    pub fn new(
        sandbox: Sandbox,
        permits: impl Fn() -> Option<Permit> + Send + Sync + 'static,
        quota: Quota,
        ended: CancellationToken,
    ) -> Self {
        Self { sandbox, permits: Arc::new(permits), quota, ended }
    }

    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Cancelled when the sandbox ends or is paused.
    pub(crate) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Takes the permission for a connection into the sandbox that stays open, if there is one left.
    pub(crate) fn permit(&self) -> Option<Permit> {
        (self.permits)()
    }

    /// Takes the permission for a websocket, if there is one left.
    pub(crate) fn socket(&self) -> Option<OwnedSemaphorePermit> {
        self.quota.sockets.clone().try_acquire_owned().ok()
    }

    /// Waits until one more large message may be in memory.
    pub(crate) async fn large_message(&self) -> LargeMessage {
        LargeMessage::take(&self.quota.large, &LARGE, LARGE_TIMEOUT).await
    }

    /// Waits until the sandbox may be asked for one more list. A sandbox that does not answer holds up no larger messages of others.
    pub(crate) async fn list(&self) -> LargeMessage {
        LargeMessage::take(&self.quota.lists, &LISTED, LIST_TIMEOUT).await
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guest({})", self.sandbox.id())
    }
}
