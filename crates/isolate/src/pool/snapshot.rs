//! Snapshots of sandboxes' files: read-only copies of subvolumes, which share all data and are created atomically whatever
//! their size. A sandbox created from a snapshot gets a writable copy over the same layers. So nothing depends on a snapshot
//! after it is used, and snapshots of snapshots do not pile up as layers.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, openat2, statat};
use rustix::io::Errno;
use sandcove_wire::id::SandboxId;

use super::{FileSystem, Pool, at, full_or, open};
use crate::{Error, Files, Result, sys};

/// Use of the pool from which on no snapshot is taken, percent.
const MAX_USED_PERCENT: u64 = 90;

impl Pool {
    /// Copies the upper of a sandbox whose processes are frozen. The snapshot is on disk when this returns; on an error
    /// there is none. Data of the snapshot no longer counts against `disk_mib`, because deleting it in the sandbox
    /// frees no space; `account` is charged for it, and for what the sandbox writes from then on.
    pub(crate) fn take_snapshot(
        &self,
        id: &SandboxId,
        name: &str,
        disk_mib: u64,
        account: u64,
    ) -> Result<()> {
        let FileSystem::Btrfs(quota) = self.file_system else { return Err(Error::NoSnapshots) };
        self.require_room()?;
        let path = self.snapshots().join(name);
        let (source, parent) = (open(&self.sandbox(id))?, open(&self.snapshots())?);
        // Before the copy: whatever holds data of the sandbox is in the account.
        quota
            .charge(parent.as_fd(), source.as_fd(), account)
            .map_err(full_or(at("charge", &self.sandbox(id))))?;
        sys::copy_subvolume(source.as_fd(), parent.as_fd(), name, true)
            .map_err(full_or(at("create snapshot", &path)))?;
        // A limit that cannot be raised does not fail the snapshot.
        let raised = quota.used(source.as_fd()).and_then(|used| {
            let bytes = used.saturating_add(disk_mib << 20);
            quota.limit(parent.as_fd(), source.as_fd(), bytes)
        });
        if let Err(error) = raised {
            tracing::warn!(sandbox_id = %id, error = %error, "failed to raise the disk limit");
        }
        Ok(())
    }

    /// Fails when the pool is too full for a snapshot or a layer: the rest is for what sandboxes and volumes may still write.
    pub(crate) fn require_room(&self) -> Result<()> {
        let disk =
            rustix::fs::statvfs(self.root()).map_err(|error| at("inspect", self.root())(error.into()))?;
        let percent = used_percent(disk.f_blocks, disk.f_bavail);
        if percent < MAX_USED_PERCENT { Ok(()) } else { Err(Error::PoolNearlyFull { percent }) }
    }

    /// Creates an upper with the files of a snapshot and a limit of `disk_mib`.
    pub(crate) fn create_from(&self, snapshot: &str, id: &SandboxId, disk_mib: u64) -> Result<PathBuf> {
        let FileSystem::Btrfs(quota) = self.file_system else { return Err(Error::NoSnapshots) };
        let (from, path) = (self.snapshots().join(snapshot), self.sandbox(id));
        let (source, parent) = (open(&from)?, open(&self.sandboxes())?);
        sys::copy_subvolume(source.as_fd(), parent.as_fd(), id.as_str(), false)
            .map_err(full_or(at("create", &path)))?;
        quota.limit(parent.as_fd(), open(&path)?.as_fd(), disk_mib << 20).map_err(at("limit", &path))?;
        // The log of the sandbox that the snapshot was taken of: earlier versions kept logs here.
        let log = path.join("agent.log");
        match std::fs::remove_file(&log) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(at("delete", &log)(error)),
            _ => Ok(path),
        }
    }

    /// Whether the sandbox starts with something of its own at one of these paths: then the warm process of its template may have
    /// loaded other code than the sandbox has.
    pub(crate) fn replaces(&self, files: &Files, id: &SandboxId, directories: &[&str]) -> bool {
        let upper = match files {
            Files::Empty => return false,
            Files::Snapshot(name) => self.snapshots().join(name),
            Files::Own => self.sandbox(id),
        };
        let upper = upper.join("upper");
        directories.iter().any(|directory| is_replaced(&upper, directory))
    }

    /// Deletes a snapshot; a missing one is no error. Sandboxes created from it keep their files.
    pub(crate) fn delete_snapshot(&self, name: &str) -> Result<()> {
        let FileSystem::Btrfs(quota) = self.file_system else { return Ok(()) };
        if !self.snapshots().join(name).exists() {
            return Ok(());
        }
        self.delete_from(&self.snapshots(), name, quota)
    }

    /// Whether there is a snapshot of this name.
    pub(crate) fn has_snapshot(&self, name: &str) -> bool {
        self.snapshots().join(name).is_dir()
    }

    /// Lists the names of all snapshots.
    pub(crate) fn snapshot_names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.snapshots()).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    }

    /// Writes the sandbox's files to disk. The kernel can do this for the whole pool only.
    pub(crate) fn sync(&self, id: &SandboxId) -> Result<()> {
        let path = self.sandbox(id);
        rustix::fs::syncfs(open(&path)?).map_err(|error| full_or(at("sync", &path))(error.into()))
    }
}

/// Whether a sandbox's upper has anything at `path`. The sandbox chose what is in there, so no link is followed: what it leads to on
/// the host must not decide anything. Links, deletions and whatever cannot be examined count as something.
fn is_replaced(upper: &Path, path: &str) -> bool {
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let limits = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let found = rustix::fs::open(upper, flags, Mode::empty())
        .and_then(|upper| openat2(&upper, parent, flags, Mode::empty(), limits))
        .and_then(|parent| statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW));
    !matches!(found, Err(Errno::NOENT))
}

fn used_percent(blocks: u64, available: u64) -> u64 {
    let used = u128::from(blocks.saturating_sub(available)) * 100 / u128::from(blocks.max(1));
    u64::try_from(used).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_an_upper_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let upper = directory.path().join("upper");
        let link = |target: &str, path: &str| std::os::unix::fs::symlink(target, upper.join(path)).unwrap();
        std::fs::create_dir_all(upper.join("usr/local")).unwrap();
        std::fs::create_dir_all(upper.join("opt/files")).unwrap();
        std::fs::write(upper.join("a-file"), "").unwrap();
        link("/nowhere", "usr/local/lib");
        link("/etc", "opt/etc");
        link("/nowhere", "srv");
        for (path, replaced) in [
            ("usr", true),
            ("usr/lib", false),
            ("usr/local", true),
            ("home", false),
            ("home/user/.local", false),
            ("opt/files", true),
            // A link counts, wherever it leads and whether or not that exists.
            ("usr/local/lib", true),
            ("opt/etc", true),
            ("opt/etc/passwd", true),
            ("opt/etc/not-there", true),
            ("srv/below", true),
            ("a-file/below", true),
        ] {
            assert_eq!(is_replaced(&upper, path), replaced, "{path}");
        }
        assert!(!is_replaced(&directory.path().join("not-there"), "usr"));
    }

    #[test]
    fn the_used_share_is_rounded_down() {
        assert_eq!(used_percent(1000, 101), 89);
        assert_eq!(used_percent(1000, 100), MAX_USED_PERCENT);
        assert_eq!((used_percent(0, 0), used_percent(10, 20), used_percent(u64::MAX, 0)), (0, 0, 100));
    }
}
