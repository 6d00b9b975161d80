//! Sandboxes made ahead, so that a start has next to nothing to wait for. A start that finds none makes its own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::Host;
use super::prepared::{Prepared, Purpose};
use crate::{Blueprint, Result};

/// How long after the last start the spares are filled up while there are enough: a new sandbox's first requests get the
/// processors.
const CALM: Duration = Duration::from_millis(250);
/// How long they are left alone when there are few.
const PAUSE: Duration = Duration::from_millis(20);
/// How long to wait when a spare cannot be made.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The spares, by what they can become.
pub(super) struct Spares {
    /// How many there should be of each kind.
    target: usize,
    kinds: Mutex<Vec<Spare>>,
    taken: Notify,
    last_taken: Mutex<Instant>,
    /// Starts that make their own sandbox right now.
    hurried: AtomicUsize,
}

struct Spare {
    blueprint: Blueprint,
    ready: Vec<Prepared>,
}

/// Keeps spares from being made while it is there.
pub(super) struct Hurry<'a>(&'a AtomicUsize);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Spares {
    pub(super) fn new(target: usize) -> Self {
        Self {
            target,
            kinds: Mutex::default(),
            taken: Notify::new(),
            last_taken: Mutex::new(Instant::now()),
            hurried: AtomicUsize::new(0),
        }
    }

    /// Has spares of `blueprint` made from now on.
    pub(super) fn want(&self, blueprint: Blueprint) {
        self.with(|kinds| {
            if !kinds.iter().any(|kind| kind.blueprint == blueprint) {
                kinds.push(Spare { blueprint, ready: Vec::new() });
            }
        });
        self.taken.notify_one();
    }

    /// Has no more spares of these layers made. Gives those there are.
    pub(super) fn forget(&self, layers: &[PathBuf]) -> Vec<Prepared> {
        self.with(|kinds| {
            kinds.extract_if(.., |kind| kind.blueprint.layers == layers).flat_map(|kind| kind.ready).collect()
        })
    }

    /// Whether there is one of `blueprint`, if there are to be any.
    pub(super) fn has(&self, blueprint: &Blueprint) -> bool {
        let ready = |kind: &Spare| kind.blueprint == *blueprint && !kind.ready.is_empty();
        self.target == 0 || self.with(|kinds| kinds.iter().any(ready))
    }

    /// A sandbox of `blueprint` that is ready, if there is one.
    pub(super) fn take(&self, blueprint: &Blueprint) -> Option<Prepared> {
        let spare =
            self.with(|kinds| kinds.iter_mut().find(|kind| kind.blueprint == *blueprint)?.ready.pop());
        *self.last_taken.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.taken.notify_one();
        spare
    }

    /// For a start that found none: it gets the processors.
    pub(super) fn hold_off(&self) -> Hurry<'_> {
        self.hurried.fetch_add(1, Ordering::Relaxed);
        Hurry(&self.hurried)
    }

    /// Takes out all there are, for good.
    pub(super) fn drain(&self) -> Vec<Prepared> {
        self.with(|kinds| kinds.drain(..).flat_map(|kind| kind.ready).collect())
    }

    /// Keeps the spares up for as long as the host is there.
    pub(super) async fn keep(host: Weak<Host>) {
        loop {
            let Some(host) = host.upgrade() else { return };
            let pause = match host.spares.fill(&host).await {
                Ok(()) => {
                    let spares = &host.spares.taken;
                    // A warm process that has become ready is noticed at the next start, or after a while.
                    let _ = tokio::time::timeout(Duration::from_secs(1), spares.notified()).await;
                    PAUSE
                }
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "no spare");
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
            let spare = Prepared::make(host, Purpose::Spare(&blueprint)).await?;
            let unwanted =
                self.with(|kinds| match kinds.iter_mut().find(|kind| kind.blueprint == blueprint) {
                    Some(kind) => {
                        kind.ready.push(spare);
                        None
                    }
                    None => Some(spare),
                });
            if let Some(spare) = unwanted {
                spare.discard(host).await;
            }
        }
        Ok(())
    }

    /// Whether somebody needs the processors more: a start that makes its own sandbox, or a sandbox that has just been taken,
    /// as long as there are spares for the next.
    fn should_wait(&self) -> bool {
        let enough = self.with(|kinds| kinds.iter().all(|kind| kind.ready.len() * 2 >= self.target));
        let calm = self.last_taken.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= CALM;
        self.hurried.load(Ordering::Relaxed) > 0 || (enough && !calm)
    }

    /// The kind that has fewest. One whose warm process is not ready waits for it: a cold start takes longer than that.
    fn missing(&self, host: &Host) -> Option<Blueprint> {
        self.with(|kinds| {
            let makeable = |kind: &&Spare| {
                kind.ready.len() < self.target
                    && (!kind.blueprint.wants_warm() || host.warm.get(&kind.blueprint.layers).is_some())
            };
            kinds
                .iter()
                .filter(makeable)
                .min_by_key(|kind| kind.ready.len())
                .map(|kind| kind.blueprint.clone())
        })
    }

    fn with<T>(&self, change: impl FnOnce(&mut Vec<Spare>) -> T) -> T {
        change(&mut self.kinds.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
