//! Samples of the resource usage of one sandbox (contract: control-plane, section 8), kept here until they are stored.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use sandcove_isolate::{Limits, Usage};
use sandcove_wire::api::observe::SandboxMetric;

/// Seconds between two samples.
pub(crate) const STEP_SECONDS: i64 = 5;
/// Samples that may wait to be stored, those of an hour; the oldest are dropped first.
const CAPACITY: usize = 720;
const MIB: u64 = 1024 * 1024;

/// The newest samples of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    pending: VecDeque<SandboxMetric>,
    latest: Option<SandboxMetric>,
    last: Option<(Timestamp, u64)>,
}

impl Samples {
    /// Adds a sample; its CPU share is that since the sample before, or since `started_at`.
    pub(crate) fn push(&self, now: Timestamp, started_at: Timestamp, limits: &Limits, usage: &Usage) {
        let mut inner = self.lock();
        let (since, before) = inner.last.unwrap_or((started_at, 0));
        let elapsed = (now.as_microsecond() - since.as_microsecond()).max(1);
        let used = usage.cpu_us.saturating_sub(before);
        // A pooled sandbox has used CPU time before its session began, more than its first moments can hold.
        let share = (used as f64 / elapsed as f64).min(f64::from(limits.cpus));
        inner.last = Some((now, usage.cpu_us));
        let sample = SandboxMetric {
            timestamp: now,
            timestamp_unix: now.as_second(),
            cpu_count: limits.cpus,
            cpu_used_pct: (share * 10_000.0).round() / 100.0,
            mem_used: usage.memory_bytes.saturating_sub(usage.cache_bytes),
            mem_total: limits.memory_mib * MIB,
            mem_cache: usage.cache_bytes,
            disk_used: usage.disk_bytes,
            disk_total: limits.disk_mib * MIB,
        };
        if inner.pending.len() == CAPACITY {
            inner.pending.pop_front();
        }
        inner.pending.push_back(sample);
        inner.latest = Some(sample);
    }

    /// The newest sample.
    pub(crate) fn latest(&self) -> Option<SandboxMetric> {
        self.lock().latest
    }

    /// Samples that are not stored yet, oldest first.
    pub(crate) fn pending(&self) -> Vec<SandboxMetric> {
        self.lock().pending.iter().copied().collect()
    }

    /// Forgets the oldest `count` samples, which are stored now.
    pub(super) fn stored(&self, count: usize) {
        let pending = &mut self.lock().pending;
        let count = count.min(pending.len());
        pending.drain(..count);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The samples of `start..=end` (Unix seconds; all when none), thinned to the documented step of that span.
pub(crate) fn thinned(
    mut samples: Vec<SandboxMetric>,
    start: Option<i64>,
    end: Option<i64>,
) -> Vec<SandboxMetric> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return samples };
    let start = start.unwrap_or(first.timestamp_unix);
    let end = end.unwrap_or(last.timestamp_unix);
    let step = step(end.saturating_sub(start));
    let mut next = i64::MIN;
    samples.retain(|sample| {
        let wanted = (start..=end).contains(&sample.timestamp_unix) && sample.timestamp_unix >= next;
        if wanted {
            next = sample.timestamp_unix - sample.timestamp_unix.rem_euclid(step) + step;
        }
        wanted
    });
    samples
}

/// Seconds between two points of an answer that covers `span` seconds.
pub(crate) fn step(span: i64) -> i64 {
    const HOUR: i64 = 3600;
    match span {
        ..HOUR => STEP_SECONDS,
        HOUR..21_600 => 30,
        21_600..43_200 => 60,
        43_200..86_400 => 120,
        86_400..604_800 => 300,
        _ => 900,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { memory_mib: 512, cpus: 2, pids: 100, disk_mib: 1024 };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn cpu_share_is_that_since_the_sample_before() {
        let samples = Samples::default();
        samples.push(at(110), at(100), &LIMITS, &Usage { cpu_us: 5_000_000, ..Usage::default() });
        samples.push(at(115), at(100), &LIMITS, &Usage { cpu_us: 15_000_000, ..Usage::default() });
        let shares: Vec<f64> = samples.pending().iter().map(|m| m.cpu_used_pct).collect();
        assert_eq!(shares, [50.0, 200.0]);
    }

    #[test]
    fn no_share_is_more_than_all_cpus() {
        let samples = Samples::default();
        samples.push(at(100), at(100), &LIMITS, &Usage { cpu_us: 5_000_000, ..Usage::default() });
        assert_eq!(samples.latest().unwrap().cpu_used_pct, 200.0);
    }

    #[test]
    fn long_spans_are_thinned() {
        let mut all_samples = Vec::new();
        for n in 0..1440 {
            let samples = Samples::default();
            samples.push(at(n * 5), at(0), &LIMITS, &Usage::default());
            all_samples.extend(samples.latest());
        }
        assert_eq!(thinned(all_samples.clone(), Some(0), Some(3599)).len(), 720);
        assert_eq!(thinned(all_samples, Some(0), Some(7199)).len(), 240);
    }
}
