//! The pool of pre-created sandboxes: a start takes one and has next to nothing to wait for. A start that finds the pool
//! empty creates its own. The pool follows demand: a blueprint has as many as were started at once in the last minutes, within a
//! budget of memory, and never fewer than it is configured with. (The storage pool is another thing: [`crate::pool`].)

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::demand::Demand;
use super::unassigned::UnassignedSandbox;
use super::warm::WarmProcesses;
use crate::{Blueprint, PoolState};

/// Time after the last start before a pool that is at least half full is refilled: the first requests of a new sandbox get
/// the processors.
const REFILL_DELAY: Duration = Duration::from_millis(250);
/// Memory that a pooled sandbox is taken for before there is one to measure, bytes.
const FIRST_GUESS: u64 = 12 << 20;

/// The pooled sandboxes, by blueprint.
pub(super) struct SandboxPool {
    /// Number of sandboxes to keep for each blueprint at least, unless it has a lower one of its own; with 0, none are kept.
    target: usize,
    /// Memory of all pooled sandboxes up to which more than that are kept, bytes.
    budget: u64,
    buckets: Mutex<Vec<Bucket>>,
    taken: Notify,
    last_taken: Mutex<Instant>,
    /// Number of starts that create their own sandbox now.
    own_starts: AtomicUsize,
}

/// The pooled sandboxes of one blueprint.
struct Bucket {
    blueprint: Blueprint,
    /// Number to keep at least.
    least: usize,
    demand: Demand,
    filled_by: FilledBy,
    /// Oldest first.
    ready: Vec<Ready>,
    /// Starts that took a sandbox, and those that found none.
    hits: u64,
    misses: u64,
}

/// A sandbox that is ready to be taken.
struct Ready {
    sandbox: UnassignedSandbox,
    since: Instant,
    memory_bytes: u64,
}

impl Bucket {
    /// Number of sandboxes to keep, if there is memory for them.
    fn wanted(&self, now: Instant) -> usize {
        self.least.max(self.demand.peak(now))
    }

    /// Memory of one sandbox, bytes.
    fn size(&self) -> u64 {
        let sum: u64 = self.ready.iter().map(|ready| ready.memory_bytes).sum();
        sum.checked_div(self.ready.len() as u64).unwrap_or(FIRST_GUESS)
    }

    /// Whether one more is to be kept, with `left` bytes of memory for those that only demand asks for.
    fn is_short(&self, now: Instant, left: u64) -> bool {
        let ready = self.ready.len();
        ready < self.least || (ready < self.wanted(now) && self.size() <= left)
    }
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
    /// A pool with `target` sandboxes for each blueprint, and more where there is demand and all of them take less than `budget` bytes.
    pub(super) fn new(target: usize, budget: u64) -> Self {
        Self {
            target,
            budget: if target == 0 { 0 } else { budget },
            buckets: Mutex::default(),
            taken: Notify::new(),
            last_taken: Mutex::new(Instant::now()),
            own_starts: AtomicUsize::new(0),
        }
    }

    /// Adds `blueprint` to those that are kept in the pool. With `few`, so many sandboxes are kept without demand, and a task of its
    /// own has to fill the bucket. Returns whether the blueprint was not kept before.
    pub(super) fn add(&self, blueprint: Blueprint, few: Option<usize>) -> bool {
        let least = few.map_or(self.target, |few| few.min(self.target));
        let filled_by = if few.is_some() { FilledBy::Own } else { FilledBy::Common };
        let demand = Demand::new(Instant::now());
        let is_new = self.with(|buckets| {
            let is_new = !buckets.iter().any(|bucket| bucket.blueprint == blueprint);
            if is_new {
                let ready = Vec::new();
                buckets.push(Bucket { blueprint, least, demand, filled_by, ready, hits: 0, misses: 0 });
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
                .map(|ready| ready.sandbox)
                .collect()
        })
    }

    /// Whether a sandbox of `blueprint` is missing; `None` when they are not kept. Without `room`, there are no slots for more than
    /// what is configured.
    pub(super) fn is_missing(&self, blueprint: &Blueprint, room: bool) -> Option<bool> {
        self.with(|buckets| {
            let left = self.left(buckets, room);
            let bucket = buckets.iter().find(|bucket| bucket.blueprint == *blueprint)?;
            Some(bucket.is_short(Instant::now(), left))
        })
    }

    /// Stops keeping sandboxes of these layers, and returns those that were ready.
    pub(super) fn remove(&self, layers: &[PathBuf]) -> Vec<UnassignedSandbox> {
        self.with(|buckets| {
            buckets
                .extract_if(.., |bucket| bucket.blueprint.layers == layers)
                .flat_map(|bucket| bucket.ready)
                .map(|ready| ready.sandbox)
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
        let now = Instant::now();
        let taken = self.with(|buckets| {
            let bucket = buckets.iter_mut().find(|bucket| bucket.blueprint == *blueprint)?;
            bucket.demand.note(now);
            // The newest: its memory is the warmest.
            let taken = bucket.ready.pop();
            *(if taken.is_some() { &mut bucket.hits } else { &mut bucket.misses }) += 1;
            taken
        });
        *self.last_taken.lock().unwrap_or_else(PoisonError::into_inner) = now;
        self.taken.notify_one();
        taken.map(|ready| ready.sandbox)
    }

    /// Takes the oldest sandbox of which there are more than are wanted, or than there is memory for.
    pub(super) fn take_surplus(&self) -> Option<UnassignedSandbox> {
        let now = Instant::now();
        self.with(|buckets| {
            let too_much = memory(buckets) > self.budget;
            let bucket = buckets.iter_mut().find(|bucket| {
                let kept = if too_much { bucket.least } else { bucket.wanted(now) };
                bucket.ready.len() > kept
            })?;
            Some(bucket.ready.remove(0).sandbox)
        })
    }

    /// Takes any sandbox: its slot is needed for a start.
    pub(super) fn take_any(&self) -> Option<UnassignedSandbox> {
        self.with(|buckets| {
            let bucket = buckets.iter_mut().max_by_key(|bucket| bucket.ready.len())?;
            (!bucket.ready.is_empty()).then(|| bucket.ready.remove(0).sandbox)
        })
    }

    /// Numbers of pooled sandboxes, by blueprint.
    pub(super) fn states(&self) -> Vec<PoolState> {
        let now = Instant::now();
        self.with(|buckets| {
            let state = |bucket: &Bucket| PoolState {
                template: bucket.blueprint.boot.template_id.clone(),
                ready: bucket.ready.len(),
                wanted: bucket.wanted(now),
                memory_bytes: bucket.ready.iter().map(|ready| ready.memory_bytes).sum(),
                oldest: bucket.ready.first().map(|ready| now.saturating_duration_since(ready.since)),
                hits: bucket.hits,
                misses: bucket.misses,
            };
            buckets.iter().map(state).collect()
        })
    }

    /// Pauses the refill for a start that creates its own sandbox.
    pub(super) fn pause_refill(&self) -> RefillPause<'_> {
        self.own_starts.fetch_add(1, Ordering::Relaxed);
        RefillPause(&self.own_starts)
    }

    /// Empties the pool for good, and returns the sandboxes that were ready.
    pub(super) fn drain(&self) -> Vec<UnassignedSandbox> {
        self.with(|buckets| {
            buckets.drain(..).flat_map(|bucket| bucket.ready).map(|ready| ready.sandbox).collect()
        })
    }

    /// Waits for a start to take a sandbox, for at most `timeout`.
    pub(super) async fn wait_for_start(&self, timeout: Duration) {
        let _ = tokio::time::timeout(timeout, self.taken.notified()).await;
    }

    /// Adds a sandbox of `blueprint` that takes `memory_bytes`; returns it when that blueprint is no longer kept.
    pub(super) fn put(
        &self,
        blueprint: &Blueprint,
        sandbox: UnassignedSandbox,
        memory_bytes: u64,
    ) -> Option<UnassignedSandbox> {
        self.with(|buckets| match buckets.iter_mut().find(|bucket| bucket.blueprint == *blueprint) {
            Some(bucket) => {
                bucket.ready.push(Ready { sandbox, since: Instant::now(), memory_bytes });
                None
            }
            None => Some(sandbox),
        })
    }

    /// Whether the processors are needed elsewhere: by a start that creates its own sandbox, or, while every blueprint has half of what
    /// is configured, by sandboxes that have just been taken.
    pub(super) fn should_wait(&self) -> bool {
        let half_full = self.with(|buckets| {
            let common = |bucket: &&Bucket| bucket.filled_by == FilledBy::Common;
            buckets.iter().filter(common).all(|bucket| bucket.ready.len() * 2 >= bucket.least)
        });
        self.own_starts.load(Ordering::Relaxed) > 0 || (half_full && !self.is_idle())
    }

    /// Whether a bucket with a task of its own should wait: for the same, and for every sandbox that has just been taken.
    pub(super) fn should_own_wait(&self) -> bool {
        self.own_starts.load(Ordering::Relaxed) > 0 || !self.is_idle()
    }

    /// Whether no sandbox has just been taken.
    fn is_idle(&self) -> bool {
        self.last_taken.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= REFILL_DELAY
    }

    /// Blueprint that lacks sandboxes and has the fewest, among those without a task of their own. A blueprint whose warm process is
    /// not ready waits for it: a cold start takes longer than that.
    pub(super) fn missing(&self, warm: &WarmProcesses, room: bool) -> Option<Blueprint> {
        let now = Instant::now();
        self.with(|buckets| {
            let left = self.left(buckets, room);
            let can_be_filled = |bucket: &&Bucket| {
                bucket.filled_by == FilledBy::Common
                    && bucket.is_short(now, left)
                    && (!bucket.blueprint.wants_warm() || warm.get(&bucket.blueprint.layers).is_some())
            };
            buckets
                .iter()
                .filter(can_be_filled)
                .min_by_key(|bucket| bucket.ready.len())
                .map(|bucket| bucket.blueprint.clone())
        })
    }

    /// Memory for sandboxes that only demand asks for, bytes.
    fn left(&self, buckets: &[Bucket], room: bool) -> u64 {
        if room { self.budget.saturating_sub(memory(buckets)) } else { 0 }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Vec<Bucket>) -> T) -> T {
        change(&mut self.buckets.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Memory of all pooled sandboxes, bytes.
fn memory(buckets: &[Bucket]) -> u64 {
    buckets.iter().flat_map(|bucket| &bucket.ready).map(|ready| ready.memory_bytes).sum()
}
