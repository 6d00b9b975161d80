//! Percentiles of measured times.

use std::time::Duration;

use serde_json::{Value, json};

/// Durations of one repeated action.
#[derive(Debug, Default)]
pub struct Series {
    name: &'static str,
    times: Vec<Duration>,
}

impl Series {
    /// An empty series.
    pub fn new(name: &'static str) -> Self {
        Self { name, times: Vec::new() }
    }

    /// Adds durations.
    pub fn extend(&mut self, times: impl IntoIterator<Item = Duration>) {
        self.times.extend(times);
    }

    /// The smallest time that at least `percent` of all do not exceed (nearest rank), in milliseconds.
    fn percentile(&self, percent: f64) -> Option<f64> {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.max(1) - 1).map(|time| time.as_secs_f64() * 1e3)
    }

    /// The series as a line of the printed table.
    pub fn line(&self) -> String {
        let cell = |percent| self.percentile(percent).map_or("-".to_owned(), |ms| format!("{ms:.1}"));
        format!(
            "{:<40} {:>5} {:>9} {:>9} {:>9}",
            self.name,
            self.times.len(),
            cell(50.0),
            cell(90.0),
            cell(99.0)
        )
    }

    /// The series as JSON.
    pub fn json(&self) -> Value {
        json!({
            "name": self.name,
            "n": self.times.len(),
            "p50_ms": self.percentile(50.0),
            "p90_ms": self.percentile(90.0),
            "p99_ms": self.percentile(99.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let mut series = Series::new("x");
        series.extend((1..=100).rev().map(Duration::from_millis));
        assert_eq!(series.percentile(50.0), Some(50.0));
        assert_eq!(series.percentile(99.0), Some(99.0));
        assert_eq!(series.percentile(100.0), Some(100.0));
    }

    #[test]
    fn one_value_is_every_percentile_and_none_is_none() {
        let mut series = Series::new("x");
        assert_eq!(series.percentile(50.0), None);
        series.extend([Duration::from_millis(7)]);
        assert_eq!((series.percentile(50.0), series.percentile(99.0)), (Some(7.0), Some(7.0)));
    }
}
