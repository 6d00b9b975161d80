//! Version 2: one hierarchy with all controllers.

use std::path::{Path, PathBuf};

use super::{CPU_PERIOD_US, make_directory, read_key, read_number, wait_for, write};
use crate::{Limits, Result, Usage};

const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

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
        for group in [&self.mount, &self.parent] {
            let available = std::fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
            for controller in CONTROLLERS {
                // Without a controller, which a container host may not delegate, there is no such limit. `sandcove doctor`
                // reports this; sandboxes run all the same.
                if available.split_whitespace().any(|one| one == controller) {
                    let _ = write(&group.join("cgroup.subtree_control"), &format!("+{controller}"));
                }
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

    pub(super) fn limit(&self, slot: u32, limits: &Limits) -> Result<()> {
        let group = self.path(slot);
        let set = |file: &str, value: String| {
            let path = group.join(file);
            if path.exists() { write(&path, &value) } else { Ok(()) }
        };
        set("memory.max", (limits.memory_mib << 20).to_string())?;
        set("memory.oom.group", "0".into())?;
        set("pids.max", limits.pids.to_string())?;
        set("cpu.max", format!("{} {CPU_PERIOD_US}", u64::from(limits.cpus) * CPU_PERIOD_US))
    }

    pub(super) fn set_low_priority(&self, slot: u32, low: bool) -> Result<()> {
        let weight = self.path(slot).join("cpu.weight");
        // Minimum and default of the kernel. The file is missing without the controller.
        if weight.exists() { write(&weight, if low { "1" } else { "100" }) } else { Ok(()) }
    }

    pub(super) fn freeze(&self, slot: u32, frozen: bool) -> Result<()> {
        let group = self.path(slot);
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
            cache_bytes: read_key(&group.join("memory.stat"), "file"),
            disk_bytes: 0,
        })
    }
}
