//! The pool of pre-created sandboxes: a start takes one and has next to nothing to wait for. A start that finds the pool
//! empty creates its own. (The storage pool is another thing: [`crate::pool`].)

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::unassigned::UnassignedSandbox;
use super::warm::WarmProcesses;
use crate::Blueprint;

/// Time after the last start before a pool that is at least half full is refilled: the first requests of a new sandbox get
/// the processors.
const REFILL_DELAY: Duration = Duration::from_millis(250);

/// The pooled sandboxes, by blueprint.
pub(super) struct SandboxPool {
    /// Number of sandboxes to keep for each blueprint, unless it has a lower maximum of its own.
    target: usize,
    buckets: Mutex<Vec<Bucket>>,
    taken: Notify,
    last_taken: Mutex<Instant>,
    /// Number of starts that create their own sandbox now.
    own_starts: AtomicUsize,
}

/// The pooled sandboxes of one blueprint.
struct Bucket {
    blueprint: Blueprint,
    target: usize,
    filled_by: FilledBy,
    ready: Vec<UnassignedSandbox>,
}

/// The task that fills a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilledBy {
    /// The one that fills all buckets of the server's own templates.
    Common,
    /// One of its own: the sandboxes of other templates may take minutes to be ready, or never be.
    Own,
}

/// Guard of a start that creates its own sandbox: the pool is not filled while it exists.
pub(super) struct RefillPause<'a>(&'a AtomicUsize);

impl Drop for RefillPause<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SandboxPool {
    pub(super) fn new(target: usize) -> Self {
        Self {
            target,
            buckets: Mutex::default(),
            taken: Notify::new(),
            last_taken: Mutex::new(Instant::now()),
            own_starts: AtomicUsize::new(0),
        }
    }

    /// Adds `blueprint` to those that are kept in the pool. With `max`, at most so many sandboxes are kept, and a task of its own
    /// has to fill the bucket. Returns whether the blueprint was not kept before.
    pub(super) fn add(&self, blueprint: Blueprint, max: Option<usize>) -> bool {
        let target = max.map_or(self.target, |max| max.min(self.target));
        let filled_by = if max.is_some() { FilledBy::Own } else { FilledBy::Common };
        let is_new = self.with(|buckets| {
            let is_new = !buckets.iter().any(|bucket| bucket.blueprint == blueprint);
            if is_new {
                buckets.push(Bucket { blueprint, target, filled_by, ready: Vec::new() });
            }
            is_new
        });
        self.taken.notify_one();
        is_new
    }

    /// Stops keeping sandboxes of `blueprint`, and returns those that were ready.
    pub(super) fn remove_one(&self, blueprint: &Blueprint) -> Vec<UnassignedSandbox> {
        self.with(|buckets| {
            buckets
                .extract_if(.., |bucket| bucket.blueprint == *blueprint)
                .flat_map(|bucket| bucket.ready)
                .collect()
        })
    }

    /// Number of sandboxes of `blueprint` that are missing; `None` when they are not kept.
    pub(super) fn missing_of(&self, blueprint: &Blueprint) -> Option<usize> {
        self.with(|buckets| {
            let bucket = buckets.iter().find(|bucket| bucket.blueprint == *blueprint)?;
            Some(bucket.target.saturating_sub(bucket.ready.len()))
        })
    }

    /// Stops keeping sandboxes of these layers, and returns those that were ready.
    pub(super) fn remove(&self, layers: &[PathBuf]) -> Vec<UnassignedSandbox> {
        self.with(|buckets| {
            buckets
                .extract_if(.., |bucket| bucket.blueprint.layers == layers)
                .flat_map(|bucket| bucket.ready)
                .collect()
        })
    }

    /// Whether a sandbox of `blueprint` is ready, or none are to be kept.
    pub(super) fn has(&self, blueprint: &Blueprint) -> bool {
        let ready = |bucket: &Bucket| bucket.blueprint == *blueprint && !bucket.ready.is_empty();
        self.target == 0 || self.with(|buckets| buckets.iter().any(ready))
    }

    /// Takes a ready sandbox of `blueprint`, if there is one.
    pub(super) fn take(&self, blueprint: &Blueprint) -> Option<UnassignedSandbox> {
        let sandbox = self
            .with(|buckets| buckets.iter_mut().find(|bucket| bucket.blueprint == *blueprint)?.ready.pop());
        *self.last_taken.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.taken.notify_one();
        sandbox
    }

    /// Pauses the refill for a start that creates its own sandbox.
    pub(super) fn pause_refill(&self) -> RefillPause<'_> {
        self.own_starts.fetch_add(1, Ordering::Relaxed);
        RefillPause(&self.own_starts)
    }

    /// Empties the pool for good, and returns the sandboxes that were ready.
    pub(super) fn drain(&self) -> Vec<UnassignedSandbox> {
        self.with(|buckets| buckets.drain(..).flat_map(|bucket| bucket.ready).collect())
    }

    /// Waits for a start to take a sandbox, for at most `timeout`.
    pub(super) async fn wait_for_start(&self, timeout: Duration) {
        let _ = tokio::time::timeout(timeout, self.taken.notified()).await;
    }

    /// Adds a sandbox of `blueprint`; returns it when that blueprint is no longer kept.
    pub(super) fn put(&self, blueprint: &Blueprint, sandbox: UnassignedSandbox) -> Option<UnassignedSandbox> {
        self.with(|buckets| match buckets.iter_mut().find(|bucket| bucket.blueprint == *blueprint) {
            Some(bucket) => {
                bucket.ready.push(sandbox);
                None
            }
            None => Some(sandbox),
        })
    }

    /// Whether the processors are needed elsewhere: by a start that creates its own sandbox, or, while the pool is at least
    /// half full, by a sandbox that has just been taken.
    pub(super) fn should_wait(&self) -> bool {
        let half_full = self.with(|buckets| {
            let common = |bucket: &&Bucket| bucket.filled_by == FilledBy::Common;
            buckets.iter().filter(common).all(|bucket| bucket.ready.len() * 2 >= bucket.target)
        });
        self.own_starts.load(Ordering::Relaxed) > 0 || (half_full && !self.is_idle())
    }

    /// Whether a bucket with a task of its own should wait: for the same, and for every sandbox that has just been taken.
    pub(super) fn should_own_wait(&self) -> bool {
        self.own_starts.load(Ordering::Relaxed) > 0 || !self.is_idle()
    }

    fn is_idle(&self) -> bool {
        self.last_taken.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= REFILL_DELAY
    }

    /// Blueprint with the fewest ready sandboxes below the target, among those without a task of their own. A blueprint whose warm process is not ready waits for it:
    /// a cold start takes longer than that.
    pub(super) fn missing(&self, warm: &WarmProcesses) -> Option<Blueprint> {
        self.with(|buckets| {
            let can_be_filled = |bucket: &&Bucket| {
                bucket.filled_by == FilledBy::Common
                    && bucket.ready.len() < bucket.target
                    && (!bucket.blueprint.wants_warm() || warm.get(&bucket.blueprint.layers).is_some())
            };
            buckets
                .iter()
                .filter(can_be_filled)
                .min_by_key(|bucket| bucket.ready.len())
                .map(|bucket| bucket.blueprint.clone())
        })
    }

    fn with<T>(&self, change: impl FnOnce(&mut Vec<Bucket>) -> T) -> T {
        change(&mut self.buckets.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
