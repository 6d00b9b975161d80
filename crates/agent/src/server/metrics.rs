//! The resource usage of the sandbox. It comes from its control group; what that does not have (no limit is set, or the files
//! are missing) comes from `/proc`, which shows the whole machine.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

const GROUP: &str = "/sys/fs/cgroup";
const MIB: u64 = 1 << 20;

/// Answer of `GET /metrics`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Metrics {
    /// Time of the sample, in Unix seconds.
    ts: u64,
    cpu_count: u32,
    /// Processor usage since the previous sample, of all processors together, in percent.
    cpu_used_pct: f64,
    /// Memory, in bytes like all fields without a unit.
    mem_total: u64,
    mem_used: u64,
    mem_cache: u64,
    mem_total_mib: u64,
    mem_used_mib: u64,
    disk_used: u64,
    disk_total: u64,
}

/// Takes samples, and remembers the previous one.
#[derive(Debug, Default)]
pub(super) struct Meter {
    previous: Mutex<Option<(Instant, Duration)>>,
}

impl Meter {
    /// Takes a sample.
    pub(super) fn read(&self) -> io::Result<Metrics> {
        let cpu_count = cpu_count();
        let (mem_total, mem_used, mem_cache) = memory()?;
        let disk = rustix::fs::statvfs("/")?;
        let disk_total = disk.f_blocks * disk.f_frsize;
        Ok(Metrics {
            ts: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs(),
            cpu_count,
            cpu_used_pct: self.cpu_used(cpu_count),
            mem_total,
            mem_used,
            mem_cache,
            mem_total_mib: mem_total / MIB,
            mem_used_mib: mem_used / MIB,
            disk_used: disk_total - disk.f_bavail * disk.f_frsize,
            disk_total,
        })
    }

    fn cpu_used(&self, count: u32) -> f64 {
        let (now, used) = (Instant::now(), cpu_time());
        let mut previous = self.previous.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((then, before)) = previous.replace((now, used)) else { return 0.0 };
        let available = now.duration_since(then).as_secs_f64() * f64::from(count);
        if available <= 0.0 {
            return 0.0;
        }
        let percent = used.saturating_sub(before).as_secs_f64() / available * 100.0;
        (percent.clamp(0.0, 100.0) * 100.0).round() / 100.0
    }
}

fn group_file(name: &str) -> Option<String> {
    fs::read_to_string(Path::new(GROUP).join(name)).ok()
}

/// The number after `key` in a text of lines `key number`.
fn field(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next() == Some(key)).then(|| words.next()?.parse().ok())?)
}

fn cpu_count() -> u32 {
    let online =
        std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
    let quota = group_file("cpu.max").and_then(|text| {
        let (quota, period) = text.trim().split_once(' ')?;
        let (quota, period): (u32, u32) = (quota.parse().ok()?, period.parse().ok()?);
        quota.checked_div(period)
    });
    quota.map_or(online, |quota| quota.clamp(1, online))
}

fn cpu_time() -> Duration {
    if let Some(micros) = group_file("cpu.stat").and_then(|text| field(&text, "usage_usec")) {
        return Duration::from_micros(micros);
    }
    // user nice system idle iowait irq softirq, in hundredths of a second.
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.lines().next().unwrap_or_default().split_whitespace().skip(1).take(7).enumerate();
    let busy =
        ticks.filter(|(column, _)| !matches!(column, 3 | 4)).filter_map(|(_, n)| n.parse::<u64>().ok());
    Duration::from_millis(busy.sum::<u64>() * 10)
}

/// The total memory, the used memory without cache, and the cache, in bytes.
fn memory() -> io::Result<(u64, u64, u64)> {
    let machine = fs::read_to_string("/proc/meminfo")?;
    let machine = |key| field(&machine, key).unwrap_or_default() * 1024;
    let total = machine("MemTotal:");
    let current = group_file("memory.current").and_then(|text| text.trim().parse::<u64>().ok());
    if let (Some(current), Some(stat)) = (current, group_file("memory.stat")) {
        let limit = group_file("memory.max").and_then(|text| text.trim().parse().ok());
        let cache = field(&stat, "file").unwrap_or_default();
        return Ok((limit.unwrap_or(total).min(total), current.saturating_sub(cache), cache));
    }
    let cache = machine("Cached:") + machine("Buffers:");
    Ok((total, total.saturating_sub(machine("MemFree:")).saturating_sub(cache), cache))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        assert_eq!(field("a 1\nab 2\nb  3 kB\n", "ab"), Some(2));
        assert_eq!(field("a 1\nab 2\nb  3 kB\n", "b"), Some(3));
        assert_eq!(field("a 1", "c"), None);
    }

    #[test]
    fn a_sample_is_plausible() {
        let meter = Meter::default();
        let first = meter.read().unwrap();
        assert_eq!(first.cpu_used_pct, 0.0);
        assert!(first.mem_total > 0 && first.mem_used <= first.mem_total);
        assert!(first.disk_used <= first.disk_total);
        assert!((0.0..=100.0).contains(&meter.read().unwrap().cpu_used_pct));
    }
}
