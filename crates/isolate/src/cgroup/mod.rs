//! Control groups, version 1, version 2, and both at once (hybrid): one group per slot, `sandcove<instance>/s<slot>`.
//!
//! | host | memory, cpu, pids | io | freeze | kill all |
//! | --- | --- | --- | --- | --- |
//! | v2 | v2 | v2 | v2 | v2 |
//! | hybrid | v1 | – | v1 freezer | v2, else with PID 1 |
//! | v1 | v1 | – | v1 freezer | with PID 1 |
//!
//! Version 2 counts buffers of sockets as memory, and writes unwritten data back on behalf of the group it belongs to; version 1
//! counts the buffers apart, and does not know whose data it writes back.

mod counter;
mod mounts;
mod reserve;
mod v1;
mod v2;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, Limits, Result, Usage};

pub(crate) use counter::CpuCounter;
use reserve::Capacity;

/// CPU bandwidth period, microseconds.
const CPU_PERIOD_US: u64 = 100_000;

/// The control group hierarchies of this host.
#[derive(Debug, Clone)]
pub(crate) enum Cgroups {
    /// Version 2 with all controllers.
    V2(v2::Hierarchy),
    /// Version 1 controllers, with a version 2 hierarchy without controllers beside them where the host has one.
    V1(v1::Hierarchies),
}

impl Cgroups {
    /// Finds the hierarchies and creates the parent group `name` in each.
    pub(crate) fn open(name: &str) -> Result<Self> {
        let mut this = Self::find(name)?;
        match &mut this {
            Self::V2(group) => group.make()?,
            Self::V1(groups) => groups.make()?,
        }
        this.require_writable()?;
        Ok(this)
    }

    /// Finds the hierarchies without changing them; the parent groups `name` may be missing.
    pub(crate) fn find(name: &str) -> Result<Self> {
        let mounts = mounts::read().map_err(|source| Error::Path {
            action: "read",
            path: PathBuf::from("/proc/self/mountinfo"),
            source,
        })?;
        if !mounts.v1.is_empty() {
            return Ok(Self::V1(v1::Hierarchies::at(mounts, name)));
        }
        let unified = mounts.v2.ok_or_else(|| Error::Kernel {
            action: "find a cgroup hierarchy (is /sys/fs/cgroup mounted?)".into(),
            source: io::ErrorKind::NotFound.into(),
        })?;
        Ok(Self::V2(v2::Hierarchy::at(unified, name)))
    }

    /// Whether it is certain that no processes run in any slot.
    pub(crate) fn are_empty(&self) -> bool {
        self.slots().into_iter().all(|slot| self.pids(slot).is_ok_and(|pids| pids.is_empty()))
    }

    /// Checks that groups can be created: those of an earlier server may exist on a host that now forbids changes.
    fn require_writable(&self) -> Result<()> {
        for parent in self.parents() {
            let probe = parent.join("probe");
            make_directory(&probe)?;
            remove_directory(&probe)?;
        }
        Ok(())
    }

    /// Creates the group of `slot`, without limits.
    pub(crate) fn create(&self, slot: u32) -> Result<()> {
        self.all(slot).iter().try_for_each(|group| make_directory(group))
    }

    /// Sets the limits of `slot`.
    pub(crate) fn limit(&self, slot: u32, limits: &Limits) -> Result<()> {
        match self {
            Self::V2(group) => group.limit(slot, limits),
            Self::V1(groups) => groups.limit(slot, limits),
        }
    }

    /// Limits what all slots use together, so that the host keeps a reserve. Limits that exist are replaced. Returns the memory that all
    /// slots may use, bytes.
    pub(crate) fn reserve(&self) -> Result<u64> {
        let capacity = Capacity::read()
            .map_err(|source| Error::Kernel { action: "read the capacity of the host".into(), source })?;
        match self {
            Self::V2(group) => group.reserve(capacity),
            Self::V1(groups) => groups.reserve(capacity),
        }
    }

    /// Gives the group the lowest CPU priority, or the default one. Processes of other groups preempt those of a group with the
    /// lowest priority at once.
    pub(crate) fn set_low_priority(&self, slot: u32, low: bool) -> Result<()> {
        let group = match self {
            Self::V2(group) => Some(group.path(slot)),
            Self::V1(groups) => groups.group("cpu", slot),
        };
        let Some(group) = group else { return Ok(()) };
        // The kernel restores the default weight of a group that is no longer idle.
        write_if_present(&group.join("cpu.idle"), if low { "1" } else { "0" })?;
        // Of disks with the scheduler BFQ, or with `io.cost.qos`; others serve whoever comes first.
        write_if_present(&group.join("io.weight"), if low { "default 10" } else { "default 100" })
    }

    /// Opens the counter of the processor time of `slot`, or of all slots together. `None` when the host does not count it.
    pub(crate) fn cpu_counter(&self, slot: Option<u32>) -> Result<Option<CpuCounter>> {
        let (parent, file, per_us) = match self {
            Self::V2(group) => (Some(group.parent()), "cpu.stat", 1),
            Self::V1(groups) => (groups.parent("cpuacct"), "cpuacct.usage", 1000),
        };
        let Some(parent) = parent else { return Ok(None) };
        let group = slot.map_or_else(|| parent.to_owned(), |slot| parent.join(format!("s{slot}")));
        CpuCounter::open(&group.join(file), per_us).map(Some)
    }

    /// Puts a process into the group of `slot`.
    pub(crate) fn attach(&self, slot: u32, pid: u32) -> Result<()> {
        self.all(slot).into_iter().try_for_each(|group| write(&group.join("cgroup.procs"), &pid.to_string()))
    }

    /// Freezes or thaws every process of `slot`, and waits until this is done.
    pub(crate) fn freeze(&self, slot: u32, frozen: bool) -> Result<()> {
        match self {
            Self::V2(group) => group.freeze(slot, frozen),
            Self::V1(groups) => groups.freeze(slot, frozen),
        }
    }

    /// Whether the groups are of version 1, where nobody can attach to a process that was stopped before it was frozen.
    pub(crate) fn is_first_version(&self) -> bool {
        matches!(self, Self::V1(_))
    }

    /// Directory of the group that freezes `slot`.
    pub(crate) fn freezer(&self, slot: u32) -> Result<PathBuf> {
        match self {
            Self::V2(group) => Ok(group.path(slot)),
            Self::V1(groups) => groups.group("freezer", slot).ok_or_else(|| Error::Kernel {
                action: "freeze: the host mounts no freezer cgroup".into(),
                source: std::io::ErrorKind::Unsupported.into(),
            }),
        }
    }

    /// Kills every process of `slot`, where the kernel can do this atomically.
    pub(crate) fn kill(&self, slot: u32) {
        let unified = match self {
            Self::V2(group) => Some(group.path(slot)),
            Self::V1(groups) => groups.unified(slot),
        };
        if let Some(group) = unified {
            let _ = std::fs::write(group.join("cgroup.kill"), "1");
        }
    }

    /// Reads the resource counters of `slot`.
    pub(crate) fn usage(&self, slot: u32) -> Result<Usage> {
        match self {
            Self::V2(group) => group.usage(slot),
            Self::V1(groups) => groups.usage(slot),
        }
    }

    /// Asks the kernel to reclaim memory of `slot`: cached files, and with swap everything else. Returns the bytes that
    /// are no longer charged.
    pub(crate) fn reclaim(&self, slot: u32) -> Result<u64> {
        let before = self.usage(slot)?.memory_bytes;
        match self {
            Self::V2(group) => group.reclaim(slot, before),
            Self::V1(groups) => groups.reclaim(slot),
        }
        Ok(before.saturating_sub(self.usage(slot)?.memory_bytes))
    }

    /// Ends every process of `slot` and removes its group.
    pub(crate) fn remove(&self, slot: u32) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            // Repeated, because a fork of a warm process may be put into the group meanwhile.
            self.kill_all(slot);
            match self.all(slot).into_iter().try_for_each(|group| remove_directory(&group)) {
                // Dead processes count until their parent has reaped them.
                Err(Error::Path { source, .. })
                    if source.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(2));
                }
                result => return result,
            }
        }
    }

    fn kill_all(&self, slot: u32) {
        self.kill(slot);
        for pid in self.pids(slot).unwrap_or_default().into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        // Version 1: a frozen process does not die before it is thawed.
        let _ = self.freeze(slot, false);
    }

    /// Removes the parent groups, unless they still contain groups.
    pub(crate) fn close(&self) {
        for parent in self.parents() {
            if let Err(error) = std::fs::remove_dir(&parent) {
                tracing::debug!(%error, path = %parent.display(), "control group kept");
            }
        }
    }

    /// Lists the slots that have a group.
    pub(crate) fn slots(&self) -> Vec<u32> {
        let mut slots: Vec<u32> = self
            .parents()
            .iter()
            .filter_map(|parent| std::fs::read_dir(parent).ok())
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix('s')?.parse().ok())
            .collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Lists the processes of `slot`, sorted; a missing group has none.
    ///
    /// # Errors
    /// When an existing group cannot be read, so that its processes are unknown.
    pub(crate) fn pids(&self, slot: u32) -> Result<Vec<i32>> {
        let mut pids = Vec::new();
        for group in self.all(slot) {
            let path = group.join("cgroup.procs");
            match std::fs::read_to_string(&path) {
                Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok())),
                // ENODEV: the group is removed while it is read.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {}
                Err(source) => return Err(Error::Path { action: "read", path, source }),
            }
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Whether `pid` is in the group of `slot`.
    ///
    /// # Errors
    /// When the processes cannot be listed; see [`Cgroups::pids`].
    pub(crate) fn contains(&self, slot: u32, pid: u32) -> Result<bool> {
        Ok(self.pids(slot)?.iter().any(|one| u32::try_from(*one) == Ok(pid)))
    }

    fn parents(&self) -> Vec<PathBuf> {
        match self {
            Self::V2(group) => vec![group.parent().to_owned()],
            Self::V1(groups) => groups.parents(),
        }
    }

    fn all(&self, slot: u32) -> Vec<PathBuf> {
        self.parents().into_iter().map(|parent| parent.join(format!("s{slot}"))).collect()
    }
}

fn write(path: &Path, value: &str) -> Result<()> {
    std::fs::write(path, value).map_err(|source| Error::Path {
        action: "write",
        path: path.to_owned(),
        source,
    })
}

/// Writes a setting that the host may lack, because its kernel has no such feature or the controller is not delegated.
fn write_if_present(path: &Path, value: &str) -> Result<()> {
    if path.exists() { write(path, value) } else { Ok(()) }
}

fn read_number(path: &Path) -> Result<u64> {
    let failed = |source| Error::Path { action: "read", path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(failed)?;
    text.trim().parse().map_err(|_| failed(io::ErrorKind::InvalidData.into()))
}

/// Reads a value of a `key value` file such as `memory.stat`; 0 when the key is missing.
fn read_key(path: &Path, key: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
        .unwrap_or_default()
}

/// Reads from `memory.stat` how much memory holds pages of files on disks. The kernel counts files in memory (`shmem`) to the cache, but
/// cannot give them back.
fn cached(path: &Path, key: &str) -> u64 {
    read_key(path, key).saturating_sub(read_key(path, "shmem"))
}

fn make_directory(path: &Path) -> Result<()> {
    match std::fs::create_dir(path) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::Path { action: "create", path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

fn remove_directory(path: &Path) -> Result<()> {
    match std::fs::remove_dir(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(Error::Path { action: "remove", path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Reads `path` until `done` accepts the text, for at most five seconds.
fn wait_for(path: &Path, done: impl Fn(&str) -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let failed = |source| Error::Path { action: "read", path: path.to_owned(), source };
        if done(&std::fs::read_to_string(path).map_err(failed)?) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(failed(io::ErrorKind::TimedOut.into()));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}
