//! Files that appear whole or not at all: written beside the volume's content, then moved in.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, fsync, openat, renameat, unlinkat};

use super::{Attributes, Entry, Result, Volume, apply, entry, failed, owned};

/// A file that is being written; dropping it leaves nothing.
#[derive(Debug)]
pub struct Upload {
    volume: Volume,
    file: OwnedFd,
    name: String,
    path: String,
    attributes: Attributes,
    is_done: bool,
}

impl Volume {
    /// Begins a file that will be at `path`. The directory above it must be there already. `name` must be unused.
    pub fn begin(self, path: &str, attributes: Attributes, name: String) -> Result<Upload> {
        self.parent(path)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&self.work, &name, flags, Mode::from_raw_mode(0o600))
            .map_err(failed("make a file", path))?;
        Ok(Upload { volume: self, file, name, path: path.to_owned(), attributes, is_done: false })
    }
}

impl Upload {
    /// Another handle to what is written.
    pub fn file(&self) -> std::io::Result<File> {
        Ok(self.file.try_clone()?.into())
    }

    /// Puts the file in its place, over another one that is there.
    pub fn finish(mut self) -> Result<Entry> {
        let mode = self.attributes.mode.or(Some(0o644));
        apply(&self.file, Attributes { mode, ..owned(self.attributes) })
            .map_err(failed("change attributes", &self.path))?;
        // What is acknowledged is on disk.
        fsync(&self.file).map_err(failed("write a file", &self.path))?;
        let (parent, name) = self.volume.parent(&self.path)?;
        renameat(&self.volume.work, &self.name, &parent, &name)
            .map_err(failed("put a file in its place", &self.path))?;
        self.is_done = true;
        entry(&self.file, &self.path)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = unlinkat(&self.volume.work, &self.name, AtFlags::empty());
        }
    }
}
