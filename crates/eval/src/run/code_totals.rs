//! How well a column writes code: pass@k over repeats, time of cases, limits that were hit, tests whose verdict changes.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::model::{CodeMetrics, Object, PassAt, Row};

/// The share of a row in what is said about code.
#[derive(Debug, Clone)]
pub struct CodeShare {
    /// The digest of the test, which its repeats share.
    task: [u8; 32],
    passed: bool,
    /// Milliseconds of each case.
    times: Vec<f64>,
    /// MiB of each case, where it is known.
    memory: Vec<f64>,
    /// The limits that cases hit.
    limits: Vec<String>,
}

impl CodeShare {
    /// Returns the share of a row, if one of its assertions ran code.
    pub fn of(row: &Row) -> Option<Self> {
        let components = row.grading_result.as_ref()?.component_results.as_ref()?;
        let codes: Vec<&Object> =
            components.iter().filter_map(|part| part.metadata.as_ref()?.get("code")?.as_object()).collect();
        let cases = || codes.iter().flat_map(|code| ["cases", "tests"].map(|key| code.get(key))).flatten();
        let cases: Vec<&serde_json::Value> =
            cases().filter_map(serde_json::Value::as_array).flatten().collect();
        if cases.is_empty() {
            return None;
        }
        let number = |key: &str| cases.iter().filter_map(|case| case.get(key)?.as_f64()).collect();
        Some(Self {
            task: Sha256::digest(serde_json::to_vec(&row.test_case).unwrap_or_default()).into(),
            passed: row.success,
            times: number("durationMs"),
            memory: number("memoryMb"),
            limits: cases.iter().filter_map(|case| Some(case.get("limit")?.as_str()?.to_owned())).collect(),
        })
    }
}

/// Returns what the shares of a column come to; nothing if it ran no code.
pub fn sum<'a>(shares: impl Iterator<Item = &'a CodeShare>) -> Option<CodeMetrics> {
    let mut tasks: BTreeMap<[u8; 32], (usize, usize)> = BTreeMap::new();
    let (mut times, mut memory) = (Vec::new(), Vec::new());
    let mut limits: BTreeMap<String, usize> = BTreeMap::new();
    for share in shares {
        let (samples, passed) = tasks.entry(share.task).or_default();
        *samples += 1;
        *passed += usize::from(share.passed);
        times.extend(&share.times);
        memory.extend(&share.memory);
        for limit in &share.limits {
            *limits.entry(limit.clone()).or_default() += 1;
        }
    }
    // Every task has been tried at least that often.
    let fewest = tasks.values().map(|(samples, _)| *samples).min()?;
    times.sort_by(f64::total_cmp);
    memory.sort_by(f64::total_cmp);
    let mut sizes: Vec<usize> = [1, 5, 10, 100].into_iter().filter(|k| *k < fewest).chain([fewest]).collect();
    sizes.dedup();
    Some(CodeMetrics {
        tasks: tasks.len(),
        samples: fewest,
        pass_at: sizes.into_iter().map(|k| pass_at(k, tasks.values())).collect(),
        flaky: tasks.values().filter(|(samples, passed)| *passed > 0 && passed < samples).count(),
        p50_ms: percentile(&times, 50.0),
        p95_ms: percentile(&times, 95.0),
        p50_memory_mb: percentile(&memory, 50.0),
        p95_memory_mb: percentile(&memory, 95.0),
        limits,
    })
}

/// The quantile of 95 % of a normal distribution.
const Z: f64 = 1.959_964;

/// The chance that at least one of `k` samples passes, without bias (Chen et al. 2021, arXiv:2107.03374), and the interval that holds
/// it with 95 % confidence over the tasks (Wilson's).
fn pass_at<'a>(k: usize, tasks: impl Iterator<Item = &'a (usize, usize)>) -> PassAt {
    let estimates: Vec<f64> = tasks.map(|(samples, passed)| estimate(*samples, *passed, k)).collect();
    let n = estimates.len() as f64;
    let rate = estimates.iter().sum::<f64>() / n;
    let middle = rate + Z * Z / (2.0 * n);
    let spread = Z * (rate * (1.0 - rate) / n + Z * Z / (4.0 * n * n)).max(0.0).sqrt();
    let scale = 1.0 + Z * Z / n;
    PassAt { k, rate, low: ((middle - spread) / scale).max(0.0), high: ((middle + spread) / scale).min(1.0) }
}

/// One minus the share of the choices of `k` among the samples that have none that passed.
fn estimate(samples: usize, passed: usize, k: usize) -> f64 {
    let failed = samples - passed;
    if failed < k {
        return 1.0;
    }
    1.0 - (failed + 1..=samples).map(|n| 1.0 - k as f64 / n as f64).product::<f64>()
}

/// The nearest rank of sorted values.
fn percentile(sorted: &[f64], percent: f64) -> Option<f64> {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(task: u8, passed: bool, time: f64, limit: Option<&str>) -> CodeShare {
        let limits = limit.map(str::to_owned).into_iter().collect();
        CodeShare { task: [task; 32], passed, times: vec![time], memory: vec![time / 10.0], limits }
    }

    #[test]
    fn estimates_have_no_bias() {
        assert_eq!(estimate(10, 0, 1), 0.0);
        assert_eq!(estimate(10, 10, 5), 1.0);
        assert!((estimate(10, 3, 1) - 0.3).abs() < 1e-12);
        // 1 - C(7, 5) / C(10, 5)
        assert!((estimate(10, 3, 5) - (1.0 - 21.0 / 252.0)).abs() < 1e-12);
    }

    #[test]
    fn tasks_are_counted_once_and_samples_of_them() {
        let shares = [
            share(1, true, 10.0, None),
            share(1, false, 20.0, Some("time")),
            share(2, true, 30.0, None),
            share(2, true, 40.0, None),
        ];
        let found = sum(shares.iter()).unwrap();
        assert_eq!((found.tasks, found.samples, found.flaky), (2, 2, 1));
        assert_eq!(found.pass_at.iter().map(|at| (at.k, at.rate)).collect::<Vec<_>>(), [(1, 0.75), (2, 1.0)]);
        assert!(found.pass_at[0].low < 0.75 && found.pass_at[0].high > 0.75);
        assert_eq!((found.p50_ms, found.p95_ms), (Some(20.0), Some(40.0)));
        assert_eq!((found.p50_memory_mb, found.p95_memory_mb), (Some(2.0), Some(4.0)));
        assert_eq!(found.limits, BTreeMap::from([("time".to_owned(), 1)]));
        assert_eq!(sum([].into_iter()), None);
    }
}
