//! Deprioritization of sandboxes that keep the processors busy, and their restoration; [`crate::fairness`] decides. The samples of the
//! API are taken every few seconds, which is too late for this.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::time::MissedTickBehavior;

use super::host::{Host, blocking};
use crate::cgroup::{Cgroups, CpuCounter};
use crate::fairness::{Account, Interval, Place};
use crate::{Error, Result};

/// Interval between two readings.
const INTERVAL: Duration = Duration::from_millis(250);

/// The processor time of running sandboxes.
#[derive(Default)]
pub(super) struct Burners(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    all: Option<All>,
    /// Running sandboxes, by slot.
    watched: HashMap<u32, Watched>,
    /// Whether the sandboxes were read at the end of the last interval.
    fresh: bool,
}

/// The processor time of all sandboxes together, and of nobody.
struct All {
    counter: CpuCounter,
    used_us: u64,
    idle_us: u64,
    at: Instant,
}

struct Watched {
    counter: CpuCounter,
    used_us: u64,
    account: Account,
}

/// Watches the sandboxes of `host` for as long as it exists.
pub(super) async fn watch(host: Weak<Host>) {
    let mut clock = tokio::time::interval(INTERVAL);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        let Some(host) = host.upgrade() else { return };
        let round = blocking(move || host.burners.settle(&host.cgroups, Instant::now())).await;
        if let Err(error) = round {
            tracing::debug!(error = &error as &dyn std::error::Error, "failed to read processor times");
        }
    }
}

impl Burners {
    /// Starts to watch the sandbox in `slot`, which has the default priority.
    pub(super) fn add(&self, cgroups: &Cgroups, slot: u32) {
        match cgroups.cpu_counter(Some(slot)) {
            Ok(Some(counter)) => {
                let used_us = counter.read_us().unwrap_or_default();
                let watched = Watched { counter, used_us, account: Account::new() };
                self.lock().watched.insert(slot, watched);
            }
            // The host does not count processor time.
            Ok(None) => {}
            Err(error) => failed(slot, &error),
        }
    }

    /// Stops to watch the sandbox in `slot`, and restores it: processes must run to be frozen or to end.
    pub(super) fn remove(&self, cgroups: &Cgroups, slot: u32) {
        let removed = self.lock().watched.remove(&slot);
        if removed.is_some_and(|watched| watched.account.place() == Place::LowPriority) {
            set_place(cgroups, slot, Place::Normal);
        }
    }

    /// Reads the processor times and moves the sandboxes whose place changes. While all together use little, only their total is
    /// read.
    fn settle(&self, cgroups: &Cgroups, now: Instant) -> Result<()> {
        let Inner { all, watched, fresh } = &mut *self.lock();
        let Some(all) = all else {
            *all = All::open(cgroups, now)?;
            return Ok(());
        };
        let (elapsed, total_us, idle_us) = all.advance(now)?;
        let interval = Interval::new(elapsed, &[], false);
        let saturated = interval.is_active(total_us) && interval.is_saturated(idle_us, processors());
        let quiet = !saturated && interval.covers(total_us);
        if quiet && watched.values().all(|watched| watched.account.is_settled()) {
            *fresh = false;
            return Ok(());
        }
        let mut used = Vec::with_capacity(watched.len());
        // An error: the group was removed. A new sandbox in its slot is added with a counter of its own.
        watched.retain(|_, watched| watched.advance().map(|one| used.push(one)).is_ok());
        if !std::mem::replace(fresh, true) {
            // Of what was used before this interval.
            return Ok(());
        }
        let interval = Interval::new(elapsed, &used, saturated);
        for ((slot, watched), used_us) in watched.iter_mut().zip(used) {
            if let Some(place) = watched.account.charge(used_us, &interval) {
                set_place(cgroups, *slot, place);
            }
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl All {
    fn open(cgroups: &Cgroups, now: Instant) -> Result<Option<Self>> {
        let Some(counter) = cgroups.cpu_counter(None)? else { return Ok(None) };
        let mut this = Self { counter, used_us: 0, idle_us: 0, at: now };
        this.advance(now)?;
        Ok(Some(this))
    }

    /// Returns the time since the last call, and what all sandboxes together have used since then, and for how long
    /// processors were idle, in microseconds.
    fn advance(&mut self, now: Instant) -> Result<(Duration, u64, u64)> {
        let failed = |source| Error::Kernel { action: "read processor times".into(), source };
        let (used_us, idle_us) = (self.counter.read_us().map_err(failed)?, idle_us().map_err(failed)?);
        let elapsed = now.saturating_duration_since(std::mem::replace(&mut self.at, now));
        let used = used_us.saturating_sub(std::mem::replace(&mut self.used_us, used_us));
        let idle = idle_us.saturating_sub(std::mem::replace(&mut self.idle_us, idle_us));
        Ok((elapsed, used, idle))
    }
}

impl Watched {
    /// Returns the processor time used since the last call, microseconds.
    fn advance(&mut self) -> io::Result<u64> {
        let used_us = self.counter.read_us()?;
        Ok(used_us.saturating_sub(std::mem::replace(&mut self.used_us, used_us)))
    }
}

/// Reads for how long the processors of the host were idle since it was booted, all of them together, microseconds.
fn idle_us() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/uptime")?;
    let seconds: Option<f64> = text.split_whitespace().nth(1).and_then(|seconds| seconds.parse().ok());
    seconds.map(|seconds| (seconds * 1e6) as u64).ok_or(io::ErrorKind::InvalidData.into())
}

fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

fn set_place(cgroups: &Cgroups, slot: u32, place: Place) {
    match cgroups.set_low_priority(slot, place == Place::LowPriority) {
        Ok(()) => tracing::debug!(slot, ?place, "the CPU priority of a sandbox changed"),
        Err(error) => failed(slot, &error),
    }
}

/// A sandbox without a watch has the priority of all others.
fn failed(slot: u32, error: &Error) {
    tracing::debug!(
        slot,
        error = error as &dyn std::error::Error,
        "failed to watch the processor time of a sandbox"
    );
}
