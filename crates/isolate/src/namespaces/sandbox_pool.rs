//! The pool of pre-created sandboxes: a start takes one and has next to nothing to wait for. A start that finds the pool
//! empty creates its own. (The storage pool is another thing: [`crate::pool`].)

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::Host;
use super::unassigned::{Purpose, UnassignedSandbox};
use crate::{Blueprint, Result};

/// Time after the last start before a pool that is at least half full is refilled: the first requests of a new sandbox get
/// the processors.
const REFILL_DELAY: Duration = Duration::from_millis(250);
/// Interval at which a waiting refill looks again, and its pause after each round.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause after a pooled sandbox could not be created.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Interval at which the pool is checked without a start.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The pooled sandboxes, by blueprint.
pub(super) struct SandboxPool {
    /// Number of sandboxes to keep for each blueprint.
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
    ready: Vec<UnassignedSandbox>,
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

    /// Adds `blueprint` to those that are kept in the pool.
    pub(super) fn add(&self, blueprint: Blueprint) {
        self.with(|buckets| {
            if !buckets.iter().any(|bucket| bucket.blueprint == blueprint) {
                buckets.push(Bucket { blueprint, ready: Vec::new() });
            }
        });
        self.taken.notify_one();
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

    /// Keeps the pool filled for as long as the host exists.
    pub(super) async fn keep_filled(host: Weak<Host>) {
        loop {
            let Some(host) = host.upgrade() else { return };
            let pause = match host.sandbox_pool.fill(&host).await {
                Ok(()) => {
                    let taken = host.sandbox_pool.taken.notified();
                    // A warm process that becomes ready is noticed at the next start, or after this interval.
                    let _ = tokio::time::timeout(CHECK_INTERVAL, taken).await;
                    PAUSE
                }
                Err(error) => {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "failed to create a pooled sandbox"
                    );
                    PAUSE_AFTER_FAILURE
                }
            };
            drop(host);
            tokio::time::sleep(pause).await;
        }
    }

    async fn fill(&self, host: &Arc<Host>) -> Result<()> {
        while let Some(blueprint) = self.missing(host) {
            while self.should_wait() {
                tokio::time::sleep(PAUSE).await;
            }
            let sandbox = UnassignedSandbox::create(host, Purpose::Pool(&blueprint)).await?;
            let unwanted =
                self.with(|buckets| match buckets.iter_mut().find(|bucket| bucket.blueprint == blueprint) {
                    Some(bucket) => {
                        bucket.ready.push(sandbox);
                        None
                    }
                    None => Some(sandbox),
                });
            if let Some(sandbox) = unwanted {
                sandbox.discard(host).await;
            }
        }
        Ok(())
    }

    /// Whether the processors are needed elsewhere: by a start that creates its own sandbox, or, while the pool is at least
    /// half full, by a sandbox that has just been taken.
    fn should_wait(&self) -> bool {
        let half_full =
            self.with(|buckets| buckets.iter().all(|bucket| bucket.ready.len() * 2 >= self.target));
        let idle = self.last_taken.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= REFILL_DELAY;
        self.own_starts.load(Ordering::Relaxed) > 0 || (half_full && !idle)
    }

    /// Blueprint with the fewest ready sandboxes below the target. A blueprint whose warm process is not ready waits for it:
    /// a cold start takes longer than that.
    fn missing(&self, host: &Host) -> Option<Blueprint> {
        self.with(|buckets| {
            let can_be_filled = |bucket: &&Bucket| {
                bucket.ready.len() < self.target
                    && (!bucket.blueprint.wants_warm()
                        || host.warm_processes.get(&bucket.blueprint.layers).is_some())
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
