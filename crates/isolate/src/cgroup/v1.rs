//! Version 1: a hierarchy per controller, and possibly a version 2 hierarchy without controllers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::mounts::CgroupMounts;
use super::{CPU_PERIOD_US, make_directory, read_key, read_number, wait_for, write};
use crate::{Limits, Result, Usage};

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

    fn group(&self, controller: &str, slot: u32) -> Option<PathBuf> {
        Some(self.parents.get(controller)?.join(format!("s{slot}")))
    }

    pub(super) fn limit(&self, slot: u32, limits: &Limits) -> Result<()> {
        let set = |controller: &str, file: &str, value: u64| match self.group(controller, slot) {
            Some(group) => write(&group.join(file), &value.to_string()),
            None => Ok(()),
        };
        set("memory", "memory.limit_in_bytes", limits.memory_mib << 20)?;
        set("pids", "pids.max", limits.pids.into())?;
        set("cpu", "cpu.cfs_period_us", CPU_PERIOD_US)?;
        set("cpu", "cpu.cfs_quota_us", u64::from(limits.cpus) * CPU_PERIOD_US)
    }

    pub(super) fn set_low_priority(&self, slot: u32, low: bool) -> Result<()> {
        // Minimum and default of the kernel.
        let shares = if low { "2" } else { "1024" };
        match self.group("cpu", slot) {
            Some(group) => write(&group.join("cpu.shares"), shares),
            None => Ok(()),
        }
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
        let cache = self.group("memory", slot).map(|group| read_key(&group.join("memory.stat"), "cache"));
        Ok(Usage {
            cpu_us: number("cpuacct", "cpuacct.usage")? / 1000,
            memory_bytes: number("memory", "memory.usage_in_bytes")?,
            cache_bytes: cache.unwrap_or_default(),
            disk_bytes: 0,
        })
    }
}
