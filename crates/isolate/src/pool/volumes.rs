//! Volumes: directories that outlive sandboxes and can be mounted by several. Each has `content`, which sandboxes mount, and
//! `work` beside it, which they never see, for unfinished uploads and removed trees.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{FileSystem, Pool, at, full_or, open};
use crate::Result;
use crate::sys;

impl Pool {
    /// Directory of all volumes.
    pub(crate) fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    /// Creates an empty volume with a limit of `size_mib`.
    pub(crate) fn create_volume(&self, name: &str, size_mib: u64) -> Result<()> {
        let parent = self.volumes();
        let path = parent.join(name);
        match self.file_system {
            FileSystem::Btrfs(quota) => {
                let parent = open(&parent)?;
                sys::create_subvolume(parent.as_fd(), name).map_err(full_or(at("create", &path)))?;
                quota
                    .limit(parent.as_fd(), open(&path)?.as_fd(), size_mib << 20)
                    .map_err(at("limit", &path))?;
            }
            FileSystem::Plain => std::fs::create_dir(&path).map_err(full_or(at("create", &path)))?,
        }
        create_parts(&path).map_err(full_or(at("create", &path)))
    }

    /// Deletes a volume; a missing one is no error. Sandboxes that mount it see it empty.
    pub(crate) fn delete_volume(&self, name: &str) -> Result<()> {
        let parent = self.volumes();
        let path = parent.join(name);
        if !path.exists() {
            return Ok(());
        }
        match self.file_system {
            FileSystem::Btrfs(quota) => self.delete_from(&parent, name, quota),
            FileSystem::Plain => std::fs::remove_dir_all(&path).map_err(at("delete", &path)),
        }
    }
}

fn create_parts(volume: &Path) -> io::Result<()> {
    for (part, mode) in [("content", 0o777), ("work", 0o700)] {
        let part = volume.join(part);
        std::fs::create_dir(&part)?;
        // Writable for every user, because templates have different ones.
        std::fs::set_permissions(&part, PermissionsExt::from_mode(mode))?;
    }
    Ok(())
}
