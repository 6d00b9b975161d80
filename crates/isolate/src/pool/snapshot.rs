//! Snapshots of what a sandbox wrote: read-only copies of its subvolume that share all data with it, made in one step
//! whatever its size. A sandbox that is made from one gets a writable copy, in one step too, over the same layers: so
//! nothing depends on a snapshot once it is used, and snapshots of snapshots do not pile up as layers.

use std::os::fd::AsFd;
use std::path::PathBuf;

use sandcove_wire::id::SandboxId;

use super::{Kind, Pool, at, delete_subvolume, full_or, open};
use crate::{Error, Files, Result, sys};

impl Pool {
    /// Copies the upper of a sandbox whose processes do not run. Durable when this returns, or not there at all. What the
    /// snapshot holds no longer counts against `disk_mib`: the sandbox could delete it and still not have the room.
    pub(crate) fn take_snapshot(&self, id: &SandboxId, name: &str, disk_mib: u64) -> Result<()> {
        let Kind::Btrfs { limits } = self.kind else { return Err(Error::NoSnapshots) };
        let path = self.snapshots().join(name);
        let (source, parent) = (open(&self.sandbox(id))?, open(&self.snapshots())?);
        sys::copy_subvolume(source.as_fd(), parent.as_fd(), name, true)
            .map_err(full_or(at("create snapshot", &path)))?;
        // A limit that stays as it was is no reason to be without the snapshot.
        if limits
            && let Ok(used) = sys::subvolume_usage(source.as_fd())
            && let Err(error) = sys::set_limit(source.as_fd(), used + (disk_mib << 20))
        {
            tracing::warn!(sandbox_id = %id, error = %error, "the disk limit was not moved");
        }
        Ok(())
    }

    /// Makes an upper that holds what the snapshot does, and `disk_mib` of its own.
    pub(crate) fn create_from(&self, snapshot: &str, id: &SandboxId, disk_mib: u64) -> Result<PathBuf> {
        let Kind::Btrfs { limits } = self.kind else { return Err(Error::NoSnapshots) };
        let (from, path) = (self.snapshots().join(snapshot), self.sandbox(id));
        let (source, parent) = (open(&from)?, open(&self.sandboxes())?);
        sys::copy_subvolume(source.as_fd(), parent.as_fd(), id.as_str(), false)
            .map_err(full_or(at("create", &path)))?;
        if limits {
            sys::set_limit(open(&path)?.as_fd(), disk_mib << 20).map_err(at("limit", &path))?;
        }
        // That of another sandbox.
        let log = self.agent_log(id);
        match std::fs::remove_file(&log) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(at("delete", &log)(error)),
            _ => Ok(path),
        }
    }

    /// Whether the files that the sandbox begins with lie in one of these directories.
    pub(crate) fn replaces(&self, files: &Files, id: &SandboxId, directories: &[&str]) -> bool {
        let upper = match files {
            Files::Empty => return false,
            Files::Snapshot(name) => self.snapshots().join(name),
            Files::Own => self.sandbox(id),
        };
        directories.iter().any(|directory| upper.join("upper").join(directory).exists())
    }

    /// Deletes a snapshot; none is fine. Sandboxes that were made from it keep their files.
    pub(crate) fn delete_snapshot(&self, name: &str) -> Result<()> {
        let Kind::Btrfs { limits } = self.kind else { return Ok(()) };
        if !self.snapshots().join(name).exists() {
            return Ok(());
        }
        delete_subvolume(&self.snapshots(), name, limits)
    }

    /// Names of all snapshots.
    pub(crate) fn snapshot_names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.snapshots()).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    }

    /// Writes to disk what the sandbox wrote. The kernel can do that for the whole pool only.
    pub(crate) fn sync(&self, id: &SandboxId) -> Result<()> {
        let path = self.sandbox(id);
        rustix::fs::syncfs(open(&path)?).map_err(|error| full_or(at("sync", &path))(error.into()))
    }
}
