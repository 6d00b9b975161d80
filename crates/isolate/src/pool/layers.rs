//! Layers that were written by a sandbox: read-only copies of snapshots beside the layers that are plain directories. The
//! files are in the directory `upper` of the layer.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use sandcove_wire::id::SandboxId;

use super::{FileSystem, Pool, at, full_or, open};
use crate::{Error, Files, Result, sys};

/// Directory of the files in a layer and in the upper of a sandbox.
const FILES: &str = "upper";

impl Pool {
    /// Makes the files of a snapshot a layer, which is on disk when this returns. A layer that exists is left as it is.
    pub(crate) fn publish_layer(&self, snapshot: &str, layer: &str) -> Result<()> {
        if !matches!(self.file_system, FileSystem::Btrfs(_)) {
            return Err(Error::NoSnapshots);
        }
        let (from, path) = (self.snapshots().join(snapshot), self.layers().join(layer));
        let (source, parent) = (open(&from)?, open(&self.layers())?);
        match sys::copy_subvolume(source.as_fd(), parent.as_fd(), layer, true) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            copied => copied.map_err(full_or(at("create layer", &path))),
        }
    }

    /// Name of the layer that holds `files`, when [`Pool::publish_layer`] made it.
    pub(crate) fn written_layer(&self, files: &Path) -> Option<String> {
        let layer = files
            .parent()
            .filter(|layer| files.ends_with(FILES) && layer.parent() == Some(&self.layers()))?;
        layer.file_name()?.to_str().map(str::to_owned)
    }

    /// Creates an empty upper for a sandbox on a written layer, with a limit of `disk_mib`.
    ///
    /// New files must not have the numbers of files of the layer (`numbers`). So the upper is a copy of the layer, which goes on counting, with
    /// the layer's files out of sight.
    pub(crate) fn create_above(&self, layer: &str, id: &SandboxId, disk_mib: u64) -> Result<PathBuf> {
        let FileSystem::Btrfs(quota) = self.file_system else { return Err(Error::NoSnapshots) };
        let (from, path) = (self.layers().join(layer), self.sandbox(id));
        let (source, parent) = (open(&from)?, open(&self.sandboxes())?);
        sys::copy_subvolume(source.as_fd(), parent.as_fd(), id.as_str(), false)
            .map_err(full_or(at("create", &path)))?;
        quota.limit(parent.as_fd(), open(&path)?.as_fd(), disk_mib << 20).map_err(at("limit", &path))?;
        let (files, below) = (path.join(FILES), path.join(format!("below-{layer}")));
        std::fs::rename(&files, &below).map_err(full_or(at("rename", &files)))?;
        std::fs::create_dir(&files).map_err(full_or(at("create", &files)))?;
        let permissions = std::fs::metadata(&below).map_err(at("inspect", &below))?.permissions();
        std::fs::set_permissions(&files, permissions).map_err(full_or(at("set permissions of", &files)))?;
        Ok(path)
    }

    /// Opens the files of layers, topmost first, and of a snapshot above them, for reading.
    pub(crate) fn open_files(&self, layers: &[String], files: &Files) -> Result<OwnedFd> {
        let snapshot = match files {
            Files::Snapshot(name) => Some(self.snapshots().join(name).join(FILES)),
            Files::Empty | Files::Own => None,
        };
        let paths: Vec<PathBuf> =
            snapshot.into_iter().chain(layers.iter().map(|layer| self.layers().join(layer))).collect();
        crate::jail::file_systems::merged(&paths).map_err(at("open the files of", &self.layers()))
    }

    /// Deletes a layer that [`Pool::publish_layer`] made; a missing one is no error. Sandboxes that use it keep its files.
    pub(crate) fn remove_layer(&self, layer: &str) -> Result<()> {
        let FileSystem::Btrfs(quota) = self.file_system else { return Ok(()) };
        if !self.layers().join(layer).exists() {
            return Ok(());
        }
        self.delete_from(&self.layers(), layer, quota)
    }
}
