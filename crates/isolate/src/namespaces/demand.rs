//! Demand for pooled sandboxes of one blueprint.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time that starts are remembered for: a burst that comes again within it finds the pool large enough.
const MEMORY: Duration = Duration::from_secs(600);
/// Time whose starts the pool should cover: about what it takes to create that many sandboxes.
const WINDOW: Duration = Duration::from_secs(10);
/// Resolution of the counts.
const INTERVAL: Duration = Duration::from_secs(1);

/// The starts of the last minutes.
#[derive(Debug)]
pub(super) struct Demand {
    since: Instant,
    /// Intervals with starts and the number of these, oldest first.
    starts: VecDeque<(u64, usize)>,
}

impl Demand {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, starts: VecDeque::new() }
    }

    /// Counts a start.
    pub(super) fn note(&mut self, now: Instant) {
        let interval = self.interval(now);
        match self.starts.back_mut() {
            Some((last, count)) if *last == interval => *count += 1,
            _ => self.starts.push_back((interval, 1)),
        }
        let oldest = self.oldest(interval);
        while self.starts.pop_front_if(|(first, _)| *first < oldest).is_some() {}
    }

    /// The largest number of starts within one window.
    pub(super) fn peak(&self, now: Instant) -> usize {
        let oldest = self.oldest(self.interval(now));
        let window = WINDOW.as_secs() / INTERVAL.as_secs();
        let mut first = self.starts.iter().skip_while(|(interval, _)| *interval < oldest).peekable();
        let (mut sum, mut peak) = (0, 0);
        for (interval, count) in first.clone() {
            sum += count;
            while let Some((_, gone)) = first.next_if(|(first, _)| first + window <= *interval) {
                sum -= gone;
            }
            peak = peak.max(sum);
        }
        peak
    }

    /// The first interval that is remembered in this one.
    fn oldest(&self, interval: u64) -> u64 {
        interval.saturating_sub(MEMORY.as_secs() / INTERVAL.as_secs())
    }

    fn interval(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.since).as_secs() / INTERVAL.as_secs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_busiest_window_of_the_last_minutes() {
        let began = Instant::now();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let mut demand = Demand::new(began);
        assert_eq!(demand.peak(at(5)), 0);
        for second in 0..100 {
            // Two each second: twenty in ten seconds.
            demand.note(at(second));
            demand.note(at(second));
        }
        assert_eq!(demand.peak(at(100)), 20);
        for _ in 0..70 {
            demand.note(at(305));
        }
        for _ in 0..30 {
            demand.note(at(312));
        }
        // A burst over a border of intervals counts as one.
        assert_eq!(demand.peak(at(330)), 100);
        assert_eq!(demand.peak(at(905)), 100);
        assert_eq!(demand.peak(at(906)), 30);
        assert_eq!(demand.peak(at(1000)), 0);
    }
}
