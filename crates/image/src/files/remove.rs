//! Removing trees that sandboxes created and may still be changing, of any depth and with any links.

use std::collections::BTreeSet;
use std::io;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{FileTree, Result, failed};

/// Separator between the name of a removed tree and the number of one of its parts.
const PART: char = '.';
/// Number of attempts to empty a directory that a sandbox keeps filling.
const ATTEMPTS: u32 = 8;

/// Outcome of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
pub enum Removal {
    /// The tree is deleted.
    Done,
    /// The tree is out of sight, but a sandbox still writes to it. Call [`FileTree::take_apart`] again.
    Unfinished,
}

impl FileTree {
    /// Removes the entry at `path` with everything below it. The entry is moved out of sight in one step, under the unused
    /// name `name`, and then taken apart.
    pub fn remove(&self, path: &str, name: &str) -> Result<Removal> {
        let (parent, last) = self.parent(path)?;
        renameat(&parent, &last, &self.work, name).map_err(failed("remove", path))?;
        match self.take_apart(name) {
            Ok(()) => Ok(Removal::Done),
            Err(error) => {
                tracing::warn!(%error, "failed to delete a removed tree, trying again later");
                Ok(Removal::Unfinished)
            }
        }
    }

    /// Deletes the leftovers of interrupted uploads and removals; returns the names of trees that could not be deleted.
    pub fn clean(&self) -> io::Result<Vec<String>> {
        let names: BTreeSet<String> = self
            .unfinished()?
            .iter()
            .map(|name| name.split_once(PART).map_or(name.as_str(), |(tree, _)| tree).to_owned())
            .collect();
        Ok(names.into_iter().filter(|name| self.take_apart(name).is_err()).collect())
    }

    /// Deletes the removed tree `name` and the parts that an earlier attempt split off. A missing tree is no error.
    pub fn take_apart(&self, name: &str) -> io::Result<()> {
        let parts: Vec<(u32, String)> =
            self.unfinished()?.into_iter().filter_map(|part| Some((number(&part, name)?, part))).collect();
        let taken = parts.iter().map(|(number, _)| *number).max().unwrap_or(0);
        Ok(self.empty(name, taken, parts.into_iter().map(|(_, part)| part))?)
    }

    fn unfinished(&self) -> io::Result<Vec<String>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let work = openat(&self.work, ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for item in Dir::read_from(&work)? {
            let name = item?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Deletes `parts` of the tree `name`. Directories inside are moved up before they are emptied, so that any depth needs
    /// only a few descriptors and no path is followed. Numbers up to `taken` are in use.
    fn empty(
        &self,
        name: &str,
        mut taken: u32,
        parts: impl Iterator<Item = String>,
    ) -> rustix::io::Result<()> {
        let mut ahead: Vec<(String, u32)> = parts.map(|part| (part, ATTEMPTS)).collect();
        while let Some((next, attempts)) = ahead.pop() {
            match unlinkat(&self.work, &next, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::ISDIR | Errno::PERM) => {}
                Err(errno) => return Err(errno),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = openat(&self.work, &next, flags, Mode::empty())?;
            for item in Dir::read_from(&directory)? {
                let item = item?;
                let inner = item.file_name();
                if inner == c"." || inner == c".." {
                    continue;
                }
                match unlinkat(&directory, inner, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(Errno::ISDIR | Errno::PERM) => {
                        taken += 1;
                        let up = format!("{name}{PART}{taken}");
                        match renameat(&directory, inner, &self.work, &up) {
                            Ok(()) => ahead.push((up, ATTEMPTS)),
                            Err(Errno::NOENT) => {}
                            Err(errno) => return Err(errno),
                        }
                    }
                    Err(errno) => return Err(errno),
                }
            }
            match unlinkat(&self.work, &next, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::NOTEMPTY) if attempts > 1 => ahead.push((next, attempts - 1)),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// Number of a part of the tree `name`; 0 is the tree itself.
fn number(part: &str, name: &str) -> Option<u32> {
    match part.strip_prefix(name)? {
        "" => Some(0),
        rest => rest.strip_prefix(PART)?.parse().ok(),
    }
}
