//! Version 2: one hierarchy with all controllers.

use std::path::{Path, PathBuf};

use super::reserve::Capacity;
use super::{
    CPU_PERIOD_US, cached, make_directory, read_key, read_number, wait_for, write, write_if_present,
};
use crate::{Limits, Result, Usage};

/// Controllers to enable. With `io` beside `memory`, unwritten data is limited for each group and written back on its behalf: one
/// sandbox that writes faster than the disk waits by itself.
const CONTROLLERS: [&str; 4] = ["memory", "cpu", "pids", "io"];

/// Swap that a group may use beside its memory. None while its processes run: version 2 counts it apart, so with swap the limit of a
/// sandbox's memory would be no limit.
const SWAP: &str = "memory.swap.max";

/// Group for the processes of a container that the server runs in.
const MEMBERS: &str = "sandcove-container";

#[derive(Debug, Clone)]
pub(crate) struct Hierarchy {
    mount: PathBuf,
    parent: PathBuf,
}

impl Hierarchy {
    pub(super) fn at(mount: PathBuf, name: &str) -> Self {
        Self { parent: mount.join(name), mount }
    }

    pub(super) fn make(&self) -> Result<()> {
        make_directory(&self.parent)?;
        self.move_members()?;
        for group in [&self.mount, &self.parent] {
            let available = std::fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
            for controller in CONTROLLERS {
                // Without a controller, which a container host may not delegate, there is no such limit. `sandcove doctor`
                // reports this; sandboxes run all the same.
                if available.split_whitespace().any(|one| one == controller)
                    && let Err(error) =
                        write(&group.join("cgroup.subtree_control"), &format!("+{controller}"))
                {
                    tracing::warn!(
                        controller,
                        error = &error as &dyn std::error::Error,
                        "a controller of the control groups cannot be used; sandboxes lack its limits"
                    );
                }
            }
        }
        Ok(())
    }

    /// In a container, the mounted group is not the root of the hierarchy: the kernel allows controllers below it only while it has
    /// no processes itself. Moves those of the container, this one among them, into a group beside that of the sandboxes.
    fn move_members(&self) -> Result<()> {
        // The root has no type.
        if !self.mount.join("cgroup.type").exists() {
            return Ok(());
        }
        let members = self.mount.join("cgroup.procs");
        let members = std::fs::read_to_string(&members).map_err(|source| crate::Error::Path {
            action: "read",
            path: members,
            source,
        })?;
        // "0": a process that this namespace of process ids does not show, and whose number nobody can write.
        let members: Vec<&str> = members.lines().filter(|pid| *pid != "0").collect();
        if members.is_empty() {
            return Ok(());
        }
        let group = self.mount.join(MEMBERS);
        make_directory(&group)?;
        tracing::info!(processes = members.len(), group = %group.display(), "moved the processes of the container");
        for pid in members {
            match write(&group.join("cgroup.procs"), pid) {
                // The process has ended.
                Err(crate::Error::Path { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => {}
                result => result?,
            }
        }
        Ok(())
    }

    pub(super) fn parent(&self) -> &Path {
        &self.parent
    }

    pub(super) fn path(&self, slot: u32) -> PathBuf {
        self.parent.join(format!("s{slot}"))
    }

    pub(super) fn reserve(&self, capacity: Capacity) -> Result<u64> {
        // "max", or no file, as in the root group: no limit.
        let above = |file: &str| read_number(&self.mount.join(file)).ok();
        let running = read_number(&self.parent.join("pids.current")).unwrap_or_default();
        let limits = capacity.within(above("memory.max"), above("pids.max")).together(running);
        write_if_present(&self.parent.join("pids.max"), &limits.threads.to_string())?;
        write_if_present(&self.parent.join("memory.max"), &limits.memory_bytes.to_string())?;
        Ok(limits.memory_bytes)
    }

    pub(super) fn limit(&self, slot: u32, limits: &Limits) -> Result<()> {
        let group = self.path(slot);
        let set = |file: &str, value: String| write_if_present(&group.join(file), &value);
        set("memory.max", (limits.memory_mib << 20).to_string())?;
        set(SWAP, "0".into())?;
        set("memory.oom.group", "0".into())?;
        set("pids.max", limits.pids.to_string())?;
        set("cpu.max", format!("{} {CPU_PERIOD_US}", u64::from(limits.cpus) * CPU_PERIOD_US))
    }

    /// Freezes or thaws; memory of frozen processes may be swapped.
    pub(super) fn freeze(&self, slot: u32, frozen: bool) -> Result<()> {
        let group = self.path(slot);
        write_if_present(&group.join(SWAP), if frozen { "max" } else { "0" })?;
        write(&group.join("cgroup.freeze"), if frozen { "1" } else { "0" })?;
        let wanted = if frozen { "frozen 1" } else { "frozen 0" };
        wait_for(&group.join("cgroup.events"), |events| events.lines().any(|line| line == wanted))
    }

    pub(super) fn reclaim(&self, slot: u32, bytes: u64) {
        // The kernel reports an error when it reclaims less than requested, which is usual; Linux before 6.0 lacks the file.
        let _ = std::fs::write(self.path(slot).join("memory.reclaim"), bytes.to_string());
    }

    pub(super) fn usage(&self, slot: u32) -> Result<Usage> {
        let group = self.path(slot);
        Ok(Usage {
            cpu_us: read_key(&group.join("cpu.stat"), "usage_usec"),
            memory_bytes: read_number(&group.join("memory.current")).unwrap_or_default(),
            cache_bytes: cached(&group.join("memory.stat"), "file"),
            disk_bytes: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the files of a group; a real one cannot be mounted beside version 1.
    fn group(path: &Path, files: &[(&str, &str)]) {
        std::fs::create_dir_all(path).unwrap();
        for (name, text) in files {
            std::fs::write(path.join(name), text).unwrap();
        }
    }

    #[test]
    fn the_parent_group_leaves_room_and_obeys_the_group_above() {
        let mount = tempfile::tempdir().unwrap();
        group(mount.path(), &[("memory.max", "2147483648\n"), ("pids.max", "max\n")]);
        let hierarchy = Hierarchy::at(mount.path().to_owned(), "sandcove7");
        let files = [("memory.max", "max\n"), ("pids.max", "max\n"), ("pids.current", "3\n")];
        group(hierarchy.parent(), &files);
        hierarchy.reserve(Capacity::read().unwrap()).unwrap();
        let read = |file: &str| read_number(&hierarchy.parent().join(file)).unwrap();
        assert!(read("memory.max") < 2 << 30);
        let most: u64 =
            std::fs::read_to_string("/proc/sys/kernel/threads-max").unwrap().trim().parse().unwrap();
        assert!((1..most).contains(&read("pids.max")));
    }

    #[test]
    fn processes_of_a_container_make_room_for_controllers() {
        let mount = tempfile::tempdir().unwrap();
        let files = [
            ("cgroup.type", "domain\n"),
            ("cgroup.procs", "0\n17\n"),
            ("cgroup.controllers", "cpu memory pids\n"),
        ];
        group(mount.path(), &files);
        group(&mount.path().join(MEMBERS), &[]);
        Hierarchy::at(mount.path().to_owned(), "sandcove7").make().unwrap();
        assert_eq!(std::fs::read_to_string(mount.path().join(MEMBERS).join("cgroup.procs")).unwrap(), "17");
    }

    #[test]
    fn the_root_of_the_hierarchy_keeps_its_processes() {
        let mount = tempfile::tempdir().unwrap();
        group(mount.path(), &[("cgroup.procs", "17\n"), ("cgroup.controllers", "cpu memory pids\n")]);
        Hierarchy::at(mount.path().to_owned(), "sandcove7").make().unwrap();
        assert!(!mount.path().join(MEMBERS).exists());
    }

    #[test]
    fn only_frozen_processes_are_swapped() {
        let mount = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy::at(mount.path().to_owned(), "sandcove7");
        let events = |frozen: u8| format!("populated 1\nfrozen {frozen}\n");
        group(&hierarchy.path(0), &[(SWAP, "max\n"), ("cgroup.events", &events(1))]);
        let allowed = || std::fs::read_to_string(hierarchy.path(0).join(SWAP)).unwrap();
        hierarchy.limit(0, &Limits { memory_mib: 512, cpus: 2, pids: 10, disk_mib: 1 }).unwrap();
        assert_eq!(allowed(), "0");
        hierarchy.freeze(0, true).unwrap();
        assert_eq!(allowed(), "max");
        group(&hierarchy.path(0), &[("cgroup.events", &events(0))]);
        hierarchy.freeze(0, false).unwrap();
        assert_eq!(allowed(), "0");
    }

    #[test]
    fn files_in_memory_are_memory_and_no_cache() {
        let mount = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy::at(mount.path().to_owned(), "sandcove7");
        let files = [
            ("cpu.stat", "usage_usec 1234\nuser_usec 1000\n"),
            ("memory.current", "9000\n"),
            ("memory.stat", "anon 3000\nfile 5000\nfile_mapped 70\nshmem 4000\n"),
        ];
        group(&hierarchy.path(0), &files);
        let wanted = Usage { cpu_us: 1234, memory_bytes: 9000, cache_bytes: 1000, disk_bytes: 0 };
        assert_eq!(hierarchy.usage(0).unwrap(), wanted);
    }

    #[test]
    fn missing_controllers_are_tolerated() {
        let mount = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy::at(mount.path().to_owned(), "sandcove7");
        group(&hierarchy.path(0), &[]);
        hierarchy.reserve(Capacity::read().unwrap()).unwrap();
        hierarchy.limit(0, &Limits { memory_mib: 512, cpus: 2, pids: 10, disk_mib: 1 }).unwrap();
        assert_eq!(std::fs::read_dir(hierarchy.parent()).unwrap().count(), 1, "only the group of slot 0");
    }
}
