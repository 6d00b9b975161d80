//! Mount points of the cgroup hierarchies.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Mount points of the hierarchies of this host.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CgroupMounts {
    /// Mount points of the version 1 controllers used here.
    pub(super) v1: BTreeMap<&'static str, PathBuf>,
    /// Mount point of version 2.
    pub(super) v2: Option<PathBuf>,
}

const USED: [&str; 5] = ["memory", "cpu", "cpuacct", "pids", "freezer"];

pub(super) fn read() -> io::Result<CgroupMounts> {
    Ok(parse(&std::fs::read_to_string("/proc/self/mountinfo")?, is_seen))
}

/// Whether a hierarchy is what is found at its mount point. Below another mount there, groups would be ordinary directories, without limits.
fn is_seen(point: &Path) -> bool {
    point.join("cgroup.procs").exists()
}

/// Reads the format of `proc(5)`: `… mount-point options … - type source super-options`. The first mount of a hierarchy that `is_seen`
/// counts: later ones are those of containers and other roots, and end with them.
fn parse(mountinfo: &str, is_seen: impl Fn(&Path) -> bool) -> CgroupMounts {
    let mut found = CgroupMounts::default();
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let Some(point) = left.split(' ').nth(4) else { continue };
        let mut right = right.split(' ');
        if !right.clone().next().is_some_and(|kind| kind.starts_with("cgroup")) || !is_seen(Path::new(point))
        {
            continue;
        }
        match right.next() {
            Some("cgroup2") => {
                found.v2.get_or_insert_with(|| PathBuf::from(point));
            }
            Some("cgroup") => {
                for option in right.nth(1).unwrap_or_default().split(',') {
                    if let Some(controller) = USED.iter().find(|used| **used == option) {
                        found.v1.entry(controller).or_insert_with(|| PathBuf::from(point));
                    }
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn co_mounted_controllers_share_a_mount_point() {
        let found = parse(
            "30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n\
             31 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
             32 25 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n",
            |_| true,
        );
        assert_eq!(found.v1["cpu"], found.v1["cpuacct"]);
        assert_eq!(found.v2, Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(found.v1.len(), 2);
    }

    #[test]
    fn the_mounts_of_another_root_are_not_used() {
        let found = parse(
            "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             31 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
             90 80 0:26 / /srv/root/sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             91 80 0:27 / /srv/root/sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            |_| true,
        );
        assert_eq!(found.v1["memory"], PathBuf::from("/sys/fs/cgroup/memory"));
        assert_eq!(found.v2, Some(PathBuf::from("/sys/fs/cgroup/unified")));
    }

    #[test]
    fn a_hierarchy_that_another_mount_hides_is_not_used() {
        let mounts = "24 30 0:22 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n\
             90 24 0:50 / /sys/fs/cgroup rw - tmpfs none rw\n\
             91 30 0:22 / /elsewhere rw - cgroup2 cgroup2 rw\n";
        assert_eq!(parse(mounts, |_| false), CgroupMounts::default());
        let found = parse(mounts, |point| point == Path::new("/elsewhere"));
        assert_eq!(found.v2, Some(PathBuf::from("/elsewhere")));
    }

    #[test]
    fn a_pure_version_2_host_has_no_version_1() {
        let found =
            parse("24 30 0:22 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", |_| true);
        assert_eq!(found, CgroupMounts { v1: BTreeMap::new(), v2: Some(PathBuf::from("/sys/fs/cgroup")) });
    }
}
