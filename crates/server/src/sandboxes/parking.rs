//! Parking: when the memory of paused sandboxes goes to disk.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::view::View;
use crate::clock;
use crate::domain::lifecycle::{Keep, Phase};

/// Sandboxes whose memory is written to disk at once although nobody waits for it: each one reads and writes all that it has.
pub(super) const CONCURRENT: usize = 2;

/// Whether and when memory goes to disk.
#[derive(Debug)]
pub(super) struct Parking {
    /// Whether this host can store memory.
    pub(super) is_possible: bool,
    /// Time after a pause at which it does; never when unset.
    after: Option<Duration>,
    turns: Arc<Semaphore>,
}

impl Parking {
    pub(super) fn new(is_possible: bool, after: Option<Duration>) -> Self {
        Self {
            is_possible,
            after: after.filter(|_| is_possible),
            turns: Arc::new(Semaphore::new(CONCURRENT)),
        }
    }

    /// Waits until a sandbox that is paused with its memory has been so for long enough, and for its turn.
    pub(super) async fn turn(&self, paused_at: Timestamp) -> OwnedSemaphorePermit {
        let Some(after) = self.after else { return std::future::pending().await };
        let age = Duration::try_from(clock::now().duration_since(paused_at)).unwrap_or_default();
        sleep(after.saturating_sub(age)).await;
        match self.turns.clone().acquire_owned().await {
            Ok(turn) => turn,
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Whether a sandbox is paused and its memory is in the host's.
pub(super) fn is_frozen(view: &View) -> bool {
    matches!(view.phase, Phase::Paused(Keep::Memory) | Phase::Parking) && view.settings.parked.is_none()
}
