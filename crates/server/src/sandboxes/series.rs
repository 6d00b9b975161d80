//! Readings of one sandbox over time (contract: control-plane, section 8).

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use sandcove_isolate::{Limits, Usage};
use sandcove_wire::api::observe::SandboxMetric;

/// Seconds between two readings.
pub(crate) const STEP_SECONDS: i64 = 5;
/// A day of readings.
const CAPACITY: usize = 17_280;
const MIB: u64 = 1024 * 1024;

/// The readings of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Series {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    readings: VecDeque<SandboxMetric>,
    last: Option<(Timestamp, u64)>,
}

impl Series {
    /// Adds a reading; the CPU share is that since the one before, or since `started_at`.
    pub(crate) fn push(&self, now: Timestamp, started_at: Timestamp, limits: &Limits, usage: &Usage) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, before) = inner.last.unwrap_or((started_at, 0));
        let elapsed = (now.as_microsecond() - since.as_microsecond()).max(1);
        let used = usage.cpu_us.saturating_sub(before);
        inner.last = Some((now, usage.cpu_us));
        if inner.readings.len() == CAPACITY {
            inner.readings.pop_front();
        }
        inner.readings.push_back(SandboxMetric {
            timestamp: now,
            timestamp_unix: now.as_second(),
            cpu_count: limits.cpus,
            cpu_used_pct: (used as f64 / elapsed as f64 * 10_000.0).round() / 100.0,
            mem_used: usage.memory_bytes.saturating_sub(usage.cache_bytes),
            mem_total: limits.memory_mib * MIB,
            mem_cache: usage.cache_bytes,
            disk_used: usage.disk_bytes,
            disk_total: limits.disk_mib * MIB,
        });
    }

    /// The newest reading.
    pub(crate) fn latest(&self) -> Option<SandboxMetric> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).readings.back().copied()
    }

    /// Readings of `start..=end` (Unix seconds), thinned to the documented step of that span.
    pub(crate) fn range(&self, start: Option<i64>, end: Option<i64>) -> Vec<SandboxMetric> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(first), Some(last)) = (inner.readings.front(), inner.readings.back()) else {
            return Vec::new();
        };
        let start = start.unwrap_or(first.timestamp_unix);
        let end = end.unwrap_or(last.timestamp_unix);
        let step = step(end.saturating_sub(start));
        let mut next = i64::MIN;
        let within = inner.readings.iter().filter(|m| (start..=end).contains(&m.timestamp_unix));
        within
            .filter(|m| {
                let wanted = m.timestamp_unix >= next;
                if wanted {
                    next = m.timestamp_unix - m.timestamp_unix.rem_euclid(step) + step;
                }
                wanted
            })
            .copied()
            .collect()
    }
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
    fn cpu_share_is_that_since_the_reading_before() {
        let series = Series::default();
        series.push(at(110), at(100), &LIMITS, &Usage { cpu_us: 5_000_000, ..Usage::default() });
        series.push(at(115), at(100), &LIMITS, &Usage { cpu_us: 15_000_000, ..Usage::default() });
        let shares: Vec<f64> = series.range(None, None).iter().map(|m| m.cpu_used_pct).collect();
        assert_eq!(shares, [50.0, 200.0]);
    }

    #[test]
    fn long_spans_are_thinned() {
        let series = Series::default();
        for n in 0..1440 {
            series.push(at(n * 5), at(0), &LIMITS, &Usage::default());
        }
        assert_eq!(series.range(Some(0), Some(3599)).len(), 720);
        assert_eq!(series.range(Some(0), Some(7199)).len(), 240);
    }
}
