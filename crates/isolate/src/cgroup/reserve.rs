//! What all sandboxes of a server may use together; the rest is reserved for the server and everything else on the host.
//! Without limits of the parent group, sandboxes that each stay within their own could take every process number or all
//! memory of the host.

use std::io;

/// Memory that is reserved: a part of all, one in so many, ...
const MEMORY_PART: u64 = 16;
/// ... but this much at least, ...
const MIN_MEMORY: u64 = 512 << 20;
/// ... and never more than half.
const MAX_MEMORY_PART: u64 = 2;
/// Processes and threads that are reserved: a quarter, beside those that the host runs when the server starts.
const THREADS_PART: u64 = 4;
/// Size of a page on x86-64, bytes.
const PAGE: u64 = 4096;

/// Capacity of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capacity {
    /// Memory, bytes.
    memory_bytes: u64,
    /// Maximum number of processes and threads.
    threads: u64,
    /// Number of those that exist.
    used_threads: u64,
    /// Memory of all sockets up to which the kernel slows none down, bytes; none without IPv4.
    socket_bytes: Option<u64>,
}

/// Limits of the parent group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Together {
    pub(super) memory_bytes: u64,
    pub(super) threads: u64,
    /// Buffers of sockets, which version 1 counts apart from memory.
    pub(super) socket_bytes: Option<u64>,
}

impl Capacity {
    /// Reads the capacity of the host.
    pub(super) fn read() -> io::Result<Self> {
        let number = |path: &str| parsed(std::fs::read_to_string(path)?.trim().parse().ok());
        let memory = std::fs::read_to_string("/proc/meminfo")?;
        let load = std::fs::read_to_string("/proc/loadavg")?;
        let sockets = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").unwrap_or_default();
        let pages: Option<u64> = sockets.split_whitespace().next().and_then(|pages| pages.parse().ok());
        Ok(Self {
            memory_bytes: parsed(total_memory(&memory))?,
            threads: number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?),
            used_threads: parsed(existing_threads(&load))?,
            socket_bytes: pages.map(|pages| pages * PAGE),
        })
    }

    /// Lowers the capacity to the limits of the group above the parent group, that of a container for example.
    pub(super) fn within(self, memory_bytes: Option<u64>, threads: Option<u64>) -> Self {
        Self {
            memory_bytes: self.memory_bytes.min(memory_bytes.unwrap_or(u64::MAX)),
            threads: self.threads.min(threads.unwrap_or(u64::MAX)),
            ..self
        }
    }

    /// Limits that leave room for everything but sandboxes, of which `running` processes and threads exist already.
    pub(super) fn together(self, running: u64) -> Together {
        let reserved =
            (self.memory_bytes / MEMORY_PART).max(MIN_MEMORY).min(self.memory_bytes / MAX_MEMORY_PART);
        let others = self.used_threads.saturating_sub(running);
        let threads = self.threads - self.threads / THREADS_PART;
        Together {
            memory_bytes: self.memory_bytes - reserved,
            // A host that is nearly out of process numbers still runs some sandboxes.
            threads: threads.saturating_sub(others).max(self.threads / THREADS_PART),
            socket_bytes: self.socket_bytes.map(|bytes| bytes - bytes / THREADS_PART),
        }
    }
}

fn parsed(number: Option<u64>) -> io::Result<u64> {
    number.ok_or(io::ErrorKind::InvalidData.into())
}

/// Memory of the host in the format of `/proc/meminfo`, bytes.
fn total_memory(text: &str) -> Option<u64> {
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(total.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Number of processes and threads in the format of `/proc/loadavg`: `load load load running/existing last`.
fn existing_threads(text: &str) -> Option<u64> {
    text.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Capacity = Capacity {
        memory_bytes: 32 << 30,
        threads: 40_000,
        used_threads: 500,
        socket_bytes: Some(400 << 20),
    };

    #[test]
    fn a_part_of_everything_is_left() {
        let limits = HOST.together(200);
        assert_eq!(limits.memory_bytes, 30 << 30);
        assert_eq!(limits.threads, 30_000 - 300);
        assert_eq!(limits.socket_bytes, Some(300 << 20));
    }

    #[test]
    fn small_hosts_keep_more_and_never_all() {
        let of = |memory_bytes| Capacity { memory_bytes, ..HOST }.together(0).memory_bytes;
        assert_eq!(of(4 << 30), (4 << 30) - (512 << 20));
        assert_eq!(of(600 << 20), 300 << 20);
        assert_eq!(Capacity { used_threads: 39_999, ..HOST }.together(0).threads, 10_000);
    }

    #[test]
    fn limits_of_a_container_count() {
        let limits = HOST.within(Some(8 << 30), Some(4000)).together(0);
        assert_eq!(limits, Together { memory_bytes: (8 << 30) - (512 << 20), threads: 2500, ..limits });
        assert_eq!(HOST.within(None, None), HOST);
    }

    #[test]
    fn the_host_is_read() {
        let host = Capacity::read().unwrap();
        assert!(host.memory_bytes > 64 << 20 && host.threads > host.used_threads, "{host:?}");
        assert_eq!(existing_threads("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(total_memory("MemTotal:       24684544 kB\nMemFree: 1 kB\n"), Some(24_684_544 << 10));
    }
}
