//! Files that processes of a sandbox have mapped or execute from mounts that are not the sandbox's: a fork of a warm process has the
//! libraries that it was loaded with. They are the same layers, mounted elsewhere, so a restore takes them from the sandbox's own mounts.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, open};

use super::budget::Budget;
use crate::{Error, Result};

/// Starts of the names of memory that looks like a file.
const MEMORY: [&str; 3] = ["/memfd:", "/dev/zero", "/SYSV"];

/// Finds the foreign files of `pids`, whose own mounts have the numbers `own`: paths by CRIU's name for the file.
pub(super) fn find(pids: &[u32], own: &HashSet<u64>, budget: &Budget) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for pid in pids {
        budget.check()?;
        let failed = |source| Error::Kernel { action: format!("read mappings of process {pid}"), source };
        add(*pid, own, &mut found).map_err(failed)?;
    }
    Ok(found)
}

/// Adds the foreign files of one process.
fn add(pid: u32, own: &HashSet<u64>, found: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    let process = Path::new("/proc").join(pid.to_string());
    let mapped = std::fs::read_dir(process.join("map_files"))?.map(|entry| entry.map(|entry| entry.path()));
    for link in mapped.chain([Ok(process.join("exe"))]) {
        let link = link?;
        let path = std::fs::read_link(&link)?;
        let name = path.to_string_lossy();
        if !name.starts_with('/') || MEMORY.iter().any(|start| name.starts_with(start)) {
            continue;
        }
        let file = open(&link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
        let mount = mount_of(&info).ok_or(io::ErrorKind::InvalidData)?;
        if !own.contains(&mount) {
            found.insert(format!("file[{mount:x}:{:x}]", fstat(&file)?.st_ino), path);
        }
    }
    Ok(())
}

fn mount_of(info: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_this_process_is_foreign_to_a_sandbox_without_mounts() {
        let program = std::env::current_exe().unwrap();
        let found = find(&[std::process::id()], &HashSet::new(), &Budget::start()).unwrap();
        assert!(found.values().any(|path| *path == program), "{found:?}");
        let info = std::fs::File::open(&program).unwrap();
        let own = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", info.as_raw_fd())).unwrap();
        let own = HashSet::from([mount_of(&own).unwrap()]);
        let found = find(&[std::process::id()], &own, &Budget::start()).unwrap();
        assert!(found.values().all(|path| *path != program), "{found:?}");
    }
}
