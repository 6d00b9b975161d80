//! Volumes: directories that outlive sandboxes and are seen by several. Each is `content`, which sandboxes mount, and
//! `work` beside it, which they never see: unfinished files are written there and removed trees end there.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Kind, Pool, at, delete_subvolume, full_or, open};
use crate::sys;
use crate::{Error, Result};

impl Pool {
    /// Where volumes are.
    pub(crate) fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    /// Makes an empty volume that may hold `size_mib`.
    pub(crate) fn create_volume(&self, name: &str, size_mib: u64) -> Result<()> {
        let parent = self.volumes();
        let path = parent.join(name);
        match self.kind {
            Kind::Btrfs { limits } => {
                sys::create_subvolume(open(&parent)?.as_fd(), name).map_err(full_or(at("create", &path)))?;
                if limits {
                    sys::set_limit(open(&path)?.as_fd(), size_mib << 20).map_err(at("limit", &path))?;
                }
            }
            Kind::Plain => std::fs::create_dir(&path).map_err(full_or(at("create", &path)))?,
        }
        furnish(&path).map_err(full_or(at("create", &path)))
    }

    /// Deletes a volume; nothing there is fine. Sandboxes that still mount it see it empty.
    pub(crate) fn delete_volume(&self, name: &str) -> Result<()> {
        let parent = self.volumes();
        let path = parent.join(name);
        if !path.exists() {
            return Ok(());
        }
        let Kind::Btrfs { limits } = self.kind else {
            return std::fs::remove_dir_all(&path).map_err(at("delete", &path));
        };
        match delete_subvolume(&parent, name, limits) {
            // It holds subvolumes that somebody inside has made, and these go as directories do.
            Err(Error::Path { source, .. }) if source.kind() == io::ErrorKind::DirectoryNotEmpty => {
                std::fs::remove_dir_all(path.join("content")).map_err(at("empty", &path))?;
                delete_subvolume(&parent, name, limits)
            }
            done => done,
        }
    }
}

fn furnish(volume: &Path) -> io::Result<()> {
    for (part, mode) in [("content", 0o777), ("work", 0o700)] {
        let part = volume.join(part);
        std::fs::create_dir(&part)?;
        // Whoever a template's user is, the volume is theirs to write.
        std::fs::set_permissions(&part, PermissionsExt::from_mode(mode))?;
    }
    Ok(())
}
