//! Version 1: a hierarchy per controller, and possibly a version 2 hierarchy without controllers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::mounts::CgroupMounts;
use super::reserve::Capacity;
use super::{CPU_PERIOD_US, cached, make_directory, read_number, wait_for, write, write_if_present};
use crate::{Limits, Result, Usage};

/// Share of a sandbox's memory that buffers of its sockets may take beside it: one part in so many. The kernel counts those of
/// all protocols here, not only of TCP.
const SOCKET_PART: u64 = 8;
const SOCKET_LIMIT: &str = "memory.kmem.tcp.limit_in_bytes";

#[derive(Debug, Clone)]
pub(crate) struct Hierarchies {
    /// Parent groups by controller.
    parents: BTreeMap<&'static str, PathBuf>,
    unified: Option<PathBuf>,
}

impl Hierarchies {
    pub(super) fn at(mounts: CgroupMounts, name: &str) -> Self {
        let parents = mounts.v1.into_iter().map(|(controller, point)| (controller, point.join(name)));
        Self { parents: parents.collect(), unified: mounts.v2.map(|point| point.join(name)) }
    }

    /// Creates the parent groups. Without a version 2 hierarchy, killing takes a little longer.
    pub(super) fn make(&mut self) -> Result<()> {
        self.unified.take_if(|parent| make_directory(parent).is_err());
        self.parents().iter().try_for_each(|parent| make_directory(parent))
    }

    /// Lists the distinct parent groups; controllers that are mounted together share one.
    pub(super) fn parents(&self) -> Vec<PathBuf> {
        let mut all: Vec<_> = self.parents.values().chain(&self.unified).cloned().collect();
        all.sort();
        all.dedup();
        all
    }

    pub(super) fn unified(&self, slot: u32) -> Option<PathBuf> {
        Some(self.unified.as_ref()?.join(format!("s{slot}")))
    }

    /// Parent group of `controller`, if the host has that controller.
    pub(super) fn parent(&self, controller: &str) -> Option<&Path> {
        self.parents.get(controller).map(PathBuf::as_path)
    }

    pub(super) fn group(&self, controller: &str, slot: u32) -> Option<PathBuf> {
        Some(self.parent(controller)?.join(format!("s{slot}")))
    }

    pub(super) fn reserve(&self, capacity: Capacity) -> Result<u64> {
        let above = |controller: &str, file: &str| {
            self.parent(controller)
                .and_then(Path::parent)
                .and_then(|group| read_number(&group.join(file)).ok())
        };
        let running = self.parent("pids").map(|parent| read_number(&parent.join("pids.current")));
        let limits = capacity
            .within(above("memory", "memory.limit_in_bytes"), above("pids", "pids.max"))
            .together(running.transpose()?.unwrap_or_default());
        if let Some(parent) = self.parent("pids") {
            write(&parent.join("pids.max"), &limits.threads.to_string())?;
        }
        if let Some(parent) = self.parent("memory") {
            if let Some(bytes) = limits.socket_bytes {
                write_if_present(&parent.join(SOCKET_LIMIT), &bytes.to_string())?;
            }
            write(&parent.join("memory.limit_in_bytes"), &limits.memory_bytes.to_string())?;
        }
        Ok(limits.memory_bytes)
    }

    pub(super) fn limit(&self, slot: u32, limits: &Limits) -> Result<()> {
        let set = |controller: &str, file: &str, value: u64| match self.group(controller, slot) {
            Some(group) => write(&group.join(file), &value.to_string()),
            None => Ok(()),
        };
        set("memory", "memory.limit_in_bytes", limits.memory_mib << 20)?;
        if let Some(group) = self.group("memory", slot) {
            let bytes = (limits.memory_mib << 20) / SOCKET_PART;
            write_if_present(&group.join(SOCKET_LIMIT), &bytes.to_string())?;
        }
        set("pids", "pids.max", limits.pids.into())?;
        set("cpu", "cpu.cfs_period_us", CPU_PERIOD_US)?;
        set("cpu", "cpu.cfs_quota_us", u64::from(limits.cpus) * CPU_PERIOD_US)
    }

    pub(super) fn freeze(&self, slot: u32, frozen: bool) -> Result<()> {
        let Some(group) = self.group("freezer", slot) else {
            return Err(crate::Error::Kernel {
                action: "freeze: the host mounts no freezer cgroup".into(),
                source: std::io::ErrorKind::Unsupported.into(),
            });
        };
        let state: &Path = &group.join("freezer.state");
        let wanted = if frozen { "FROZEN" } else { "THAWED" };
        write(state, wanted)?;
        wait_for(state, |now| now.trim() == wanted)
    }

    pub(super) fn reclaim(&self, slot: u32) {
        if let Some(group) = self.group("memory", slot) {
            // The kernel reports "busy" when some memory stays, which is usual.
            let _ = std::fs::write(group.join("memory.force_empty"), "1");
        }
    }

    pub(super) fn usage(&self, slot: u32) -> Result<Usage> {
        let number = |controller: &str, file: &str| match self.group(controller, slot) {
            Some(group) => read_number(&group.join(file)),
            None => Ok(0),
        };
        let cache = self.group("memory", slot).map(|group| cached(&group.join("memory.stat"), "cache"));
        Ok(Usage {
            cpu_us: number("cpuacct", "cpuacct.usage")? / 1000,
            memory_bytes: number("memory", "memory.usage_in_bytes")?,
            cache_bytes: cache.unwrap_or_default(),
            disk_bytes: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the files of a group; changing real ones takes root.
    fn group(path: &Path, files: &[&str]) {
        std::fs::create_dir_all(path).unwrap();
        for name in files {
            std::fs::write(path.join(name), "0\n").unwrap();
        }
    }

    #[test]
    fn buffers_of_sockets_are_limited_where_the_kernel_counts_them() {
        let mount = tempfile::tempdir().unwrap();
        let mounts = CgroupMounts { v1: BTreeMap::from([("memory", mount.path().to_owned())]), v2: None };
        let hierarchies = Hierarchies::at(mounts, "sandcove7");
        let limits = Limits { memory_mib: 512, cpus: 2, pids: 10, disk_mib: 1 };
        for (slot, files) in [(0, [SOCKET_LIMIT].as_slice()), (1, &[])] {
            group(&hierarchies.group("memory", slot).unwrap(), files);
            hierarchies.limit(slot, &limits).unwrap();
        }
        let limit = |slot| read_number(&hierarchies.group("memory", slot).unwrap().join(SOCKET_LIMIT));
        assert_eq!(limit(0).unwrap(), 64 << 20);
        assert!(limit(1).is_err(), "the kernel has no such limit");
    }
}
