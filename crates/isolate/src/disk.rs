//! Disk usage.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSpace {
    /// Mount point.
    pub mount_point: PathBuf,
    /// Mounted device.
    pub device: String,
    /// File system type.
    pub kind: String,
    /// Used space, bytes.
    pub used_bytes: u64,
    /// Space that is left for processes without privileges, bytes: some file systems keep a part for root.
    pub available_bytes: u64,
    /// Size, bytes.
    pub total_bytes: u64,
}

/// Inspects the file system that `path` is on.
pub fn disk_space(path: &Path) -> Result<DiskSpace> {
    let at = |source: std::io::Error| Error::Path { action: "inspect", path: path.to_owned(), source };
    let disk = rustix::fs::statvfs(path).map_err(|errno| at(errno.into()))?;
    let real = path.canonicalize().map_err(at)?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").map_err(at)?;
    // The longest mount point above the path; of several at one mount point, the last one covers the others.
    let mount = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            Some((fields.next()?, Path::new(fields.next()?), fields.next()?))
        })
        .filter(|(_, point, _)| real.starts_with(point))
        .max_by_key(|(_, point, _)| point.as_os_str().len());
    let (device, mount_point, kind) = mount.unwrap_or(("unknown", Path::new("/"), "unknown"));
    Ok(DiskSpace {
        mount_point: mount_point.to_owned(),
        device: device.to_owned(),
        kind: kind.to_owned(),
        used_bytes: disk.f_blocks.saturating_sub(disk.f_bfree) * disk.f_frsize,
        available_bytes: disk.f_bavail * disk.f_frsize,
        total_bytes: disk.f_blocks * disk.f_frsize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_of_a_directory_is_found() {
        let space = disk_space(Path::new("/proc")).unwrap();
        assert_eq!((space.mount_point.as_path(), space.kind.as_str()), (Path::new("/proc"), "proc"));
        assert!(disk_space(Path::new("/does/not/exist")).is_err());
    }
}
