//! Snapshots of sandboxes' files: read-only copies of subvolumes, which share all data and are created atomically whatever
//! their size. A sandbox created from a snapshot gets a writable copy over the same layers. So nothing depends on a snapshot
//! after it is used, and snapshots of snapshots do not pile up as layers.

use std::os::fd::AsFd;
use std::path::PathBuf;

use sandcove_wire::id::SandboxId;

use super::{FileSystem, Pool, at, delete_subvolume, full_or, open};
use crate::{Error, Files, Result, sys};

impl Pool {
    /// Copies the upper of a sandbox whose processes are frozen. The snapshot is on disk when this returns; on an error
    /// there is none. Data of the snapshot no longer counts against `disk_mib`, because deleting it in the sandbox
    /// frees no space.
    pub(crate) fn take_snapshot(&self, id: &SandboxId, name: &str, disk_mib: u64) -> Result<()> {
        let FileSystem::Btrfs { limits } = self.file_system else { return Err(Error::NoSnapshots) };
        let path = self.snapshots().join(name);
        let (source, parent) = (open(&self.sandbox(id))?, open(&self.snapshots())?);
        sys::copy_subvolume(source.as_fd(), parent.as_fd(), name, true)
            .map_err(full_or(at("create snapshot", &path)))?;
        // A limit that cannot be raised does not fail the snapshot.
        if limits
            && let Ok(used) = sys::subvolume_usage(source.as_fd())
            && let Err(error) = sys::set_limit(source.as_fd(), used + (disk_mib << 20))
        {
            tracing::warn!(sandbox_id = %id, error = %error, "failed to raise the disk limit");
        }
        Ok(())
    }

    /// Creates an upper with the files of a snapshot and a limit of `disk_mib`.
    pub(crate) fn create_from(&self, snapshot: &str, id: &SandboxId, disk_mib: u64) -> Result<PathBuf> {
        let FileSystem::Btrfs { limits } = self.file_system else { return Err(Error::NoSnapshots) };
        let (from, path) = (self.snapshots().join(snapshot), self.sandbox(id));
        let (source, parent) = (open(&from)?, open(&self.sandboxes())?);
        sys::copy_subvolume(source.as_fd(), parent.as_fd(), id.as_str(), false)
            .map_err(full_or(at("create", &path)))?;
        if limits {
            sys::set_limit(open(&path)?.as_fd(), disk_mib << 20).map_err(at("limit", &path))?;
        }
        // The log of the sandbox that the snapshot was taken of.
        let log = self.agent_log(id);
        match std::fs::remove_file(&log) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(at("delete", &log)(error)),
            _ => Ok(path),
        }
    }

    /// Whether the sandbox starts with files in one of these directories.
    pub(crate) fn replaces(&self, files: &Files, id: &SandboxId, directories: &[&str]) -> bool {
        let upper = match files {
            Files::Empty => return false,
            Files::Snapshot(name) => self.snapshots().join(name),
            Files::Own => self.sandbox(id),
        };
        directories.iter().any(|directory| upper.join("upper").join(directory).exists())
    }

    /// Deletes a snapshot; a missing one is no error. Sandboxes created from it keep their files.
    pub(crate) fn delete_snapshot(&self, name: &str) -> Result<()> {
        let FileSystem::Btrfs { limits } = self.file_system else { return Ok(()) };
        if !self.snapshots().join(name).exists() {
            return Ok(());
        }
        delete_subvolume(&self.snapshots(), name, limits)
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
