//! Checks of where sandboxes keep their files.

use std::path::{Path, PathBuf};

use sandcove_isolate::PoolQuotas;

use super::checks::{has_module, knows_filesystem};
use super::{Check, Status};

/// Room that templates and a few sandboxes need, GiB.
const MIN_SPACE_GIB: u64 = 10;
/// `f_type` of btrfs, see statfs(2).
const BTRFS_MAGIC: u64 = 0x9123_683e;

/// The file system of the storage pool.
pub(super) fn btrfs(data_dir: &Path) -> Check {
    let existing = existing_ancestor(data_dir);
    let on_btrfs = rustix::fs::statfs(&existing).is_ok_and(|stat| stat.f_type as u64 == BTRFS_MAGIC);
    if on_btrfs {
        return Check::ok("btrfs", format!("{} is on btrfs", existing.display()));
    }
    if !knows_filesystem("btrfs") && !has_module("btrfs") {
        let found = "btrfs is not supported by the kernel, or not loaded";
        return Check::when(false, "btrfs", found, Status::Warn, "load the module: modprobe btrfs");
    }
    let has_loop = Path::new("/dev/loop-control").exists();
    let found = if has_loop {
        "in an image on a loop device"
    } else {
        "no loop devices, and no btrfs below the data directory"
    };
    let hint = "load the module (modprobe loop), or put the data directory on btrfs";
    Check::when(has_loop, "btrfs", found, Status::Missing, hint)
}

/// Quotas of the storage pool, which limit the disk of sandboxes.
pub(super) fn quotas(data_dir: &Path) -> Check {
    let (status, found, hint) = match PoolQuotas::of(data_dir) {
        PoolQuotas::Simple => return Check::ok("disk quotas", "simple quotas"),
        PoolQuotas::Full => (
            Status::Warn,
            "full quotas: sandboxes have limits, the disk space of snapshots is not counted",
            "use Linux 6.7 or newer, which has simple quotas, and start with a new data directory; snapshots are limited by their \
             number only",
        ),
        PoolQuotas::Unmountable => (
            Status::Missing,
            "the pool has simple quotas, which this kernel cannot mount",
            "boot Linux 6.7 or newer, or write a backup there (sandcove backup) and restore it to another data directory here \
             (sandcove restore)",
        ),
    };
    Check::when(false, "disk quotas", found, status, hint)
}

/// Room below the data directory.
pub(super) fn space(data_dir: &Path) -> Check {
    let existing = existing_ancestor(data_dir);
    let gib = rustix::fs::statvfs(&existing).map_or(0, |stat| (stat.f_bavail * stat.f_frsize) >> 30);
    let found = format!("{gib} GiB free on {}", existing.display());
    Check::when(
        gib >= MIN_SPACE_GIB,
        "disk space",
        found,
        Status::Warn,
        "free some space: templates take 3 GiB, and every sandbox adds to that",
    )
}

fn existing_ancestor(path: &Path) -> PathBuf {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_to_come_is_checked_where_it_will_be() {
        assert_eq!(existing_ancestor(Path::new("/does/not/exist")), Path::new("/"));
    }
}
