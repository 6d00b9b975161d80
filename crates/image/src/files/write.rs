//! Atomic uploads: a file is written beside the content, then moved into place.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, fsync, openat, renameat, unlinkat};

use super::{Attributes, Entry, FileTree, Result, apply, entry, failed, owned};

/// A file that is being written. Dropping an unfinished upload deletes it.
#[derive(Debug)]
pub struct Upload {
    tree: FileTree,
    file: OwnedFd,
    name: String,
    path: String,
    attributes: Attributes,
    is_done: bool,
}

impl FileTree {
    /// Begins an upload to `path`, whose parent directory must exist. `name` is an unused name for the unfinished file.
    pub fn begin(self, path: &str, attributes: Attributes, name: String) -> Result<Upload> {
        self.parent(path)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&self.work, &name, flags, Mode::from_raw_mode(0o600))
            .map_err(failed("make a file", path))?;
        Ok(Upload { tree: self, file, name, path: path.to_owned(), attributes, is_done: false })
    }
}

impl Upload {
    /// Opens another handle to the unfinished file.
    pub fn file(&self) -> std::io::Result<File> {
        Ok(self.file.try_clone()?.into())
    }

    /// Moves the file into place; replaces a file that is there.
    pub fn finish(mut self) -> Result<Entry> {
        let mode = self.attributes.mode.or(Some(0o644));
        apply(&self.file, Attributes { mode, ..owned(self.attributes) })
            .map_err(failed("change attributes", &self.path))?;
        // An acknowledged file is on disk.
        fsync(&self.file).map_err(failed("write a file", &self.path))?;
        let (parent, name) = self.tree.parent(&self.path)?;
        renameat(&self.tree.work, &self.name, &parent, &name)
            .map_err(failed("put a file in its place", &self.path))?;
        self.is_done = true;
        entry(&self.file, &self.path)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = unlinkat(&self.tree.work, &self.name, AtFlags::empty());
        }
    }
}
