//! The host, as operators see it: its hardware, its load, and whether it admits new sandboxes.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use sandcove_host::Host;
use sandcove_wire::api::admin::{Disk, MachineInfo, NodeMetrics, NodeStatus};
use uuid::Uuid;

use crate::clock;

/// The host of this server.
#[derive(Debug)]
pub(crate) struct Node {
    id: String,
    instance: Uuid,
    machine: MachineInfo,
    status: Mutex<(NodeStatus, Timestamp)>,
    /// Busy and all ticks of all CPUs at the last sample.
    ticks: Mutex<(u64, u64)>,
}

impl Node {
    pub(crate) fn new() -> Self {
        let host_name = read("/proc/sys/kernel/hostname");
        let name = host_name.trim();
        Self {
            id: if name.is_empty() { "localhost" } else { name }.to_owned(),
            instance: Uuid::new_v4(),
            machine: machine(&read("/proc/cpuinfo")),
            status: Mutex::new((NodeStatus::Ready, clock::now())),
            ticks: Mutex::new(ticks(&read("/proc/stat"))),
        }
    }

    /// The host name.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The id of this run of the server.
    pub(crate) fn instance(&self) -> Uuid {
        self.instance
    }

    pub(crate) fn machine(&self) -> &MachineInfo {
        &self.machine
    }

    /// The status, and the time since when it holds.
    pub(crate) fn status(&self) -> (NodeStatus, Timestamp) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_status(&self, status: NodeStatus) {
        let mut now = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if now.0 != status {
            *now = (status, clock::now());
        }
    }

    /// Usage of processors and memory; 0 for values that the kernel does not report.
    pub(crate) fn usage(&self) -> NodeMetrics {
        let (busy, all) = ticks(&read("/proc/stat"));
        let mut last = self.ticks.lock().unwrap_or_else(PoisonError::into_inner);
        let (busy_since, since) = (busy.saturating_sub(last.0), all.saturating_sub(last.1));
        *last = (busy, all);
        drop(last);
        let memory = read("/proc/meminfo");
        let bytes = |name: &str| number(&memory, name) << 10;
        let total = bytes("MemTotal:");
        NodeMetrics {
            cpu_percent: u32::try_from(busy_since * 100 / since.max(1)).unwrap_or(100),
            cpu_count: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            memory_total_bytes: total,
            memory_used_bytes: total.saturating_sub(bytes("MemAvailable:")),
            huge_pages_total: number(&memory, "HugePages_Total:"),
            huge_pages_used: number(&memory, "HugePages_Total:")
                .saturating_sub(number(&memory, "HugePages_Free:")),
            huge_pages_reserved: number(&memory, "HugePages_Rsvd:"),
            huge_page_size_bytes: bytes("Hugepagesize:"),
            ..NodeMetrics::default()
        }
    }

    /// The disk of the pool, if there is a pool.
    pub(crate) async fn disks(&self, host: &Host) -> Vec<Disk> {
        let Ok(space) = host.pool_space().await else { return Vec::new() };
        vec![Disk {
            mount_point: space.mount_point.display().to_string(),
            device: space.device,
            filesystem_type: space.kind,
            used_bytes: space.used_bytes,
            total_bytes: space.total_bytes,
        }]
    }
}

/// A share of the memory of this host, bytes; no limit when the kernel does not report it.
pub(crate) fn share_of_memory(percent: u32) -> u64 {
    match number(&read("/proc/meminfo"), "MemTotal:") << 10 {
        0 => u64::MAX,
        total => total / 100 * u64::from(percent),
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn machine(cpuinfo: &str) -> MachineInfo {
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
        line.and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim().to_owned())
            .unwrap_or_default()
    };
    MachineInfo {
        cpu_family: field("cpu family"),
        cpu_model: field("model"),
        cpu_model_name: field("model name"),
        cpu_architecture: std::env::consts::ARCH.to_owned(),
    }
}

/// Busy and all ticks of all CPUs together.
fn ticks(stat: &str) -> (u64, u64) {
    let Some(line) = stat.lines().find_map(|line| line.strip_prefix("cpu ")) else { return (0, 0) };
    // The ninth and tenth field, time of guests, are part of the first two.
    let fields: Vec<u64> = line.split_whitespace().take(8).filter_map(|field| field.parse().ok()).collect();
    let all: u64 = fields.iter().sum();
    let idle: u64 = fields.iter().skip(3).take(2).sum();
    (all - idle, all)
}

fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(ticks("cpu  10 0 20 60 10 0 0 0 5 5\ncpu0 1 1 1 1"), (30, 100));
        assert_eq!(number("MemTotal:  24 kB\nHugePages_Rsvd: 3", "HugePages_Rsvd:"), 3);
        let machine = machine("processor\t: 0\nmodel\t\t: 106\nmodel name\t: A CPU: fast\n");
        assert_eq!((machine.cpu_model.as_str(), machine.cpu_model_name.as_str()), ("106", "A CPU: fast"));
    }

    #[test]
    fn an_unchanged_status_keeps_its_time() {
        let node = Node::new();
        let before = node.status();
        node.set_status(NodeStatus::Ready);
        assert_eq!(node.status(), before);
        node.set_status(NodeStatus::Draining);
        assert_eq!(node.status().0, NodeStatus::Draining);
    }
}
