//! Removing trees that others made, and may still be changing: as deep as they like, with links wherever they like.

use std::collections::BTreeSet;
use std::io;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::{Result, Volume, failed};

/// Between the name of a removed tree and the number of a part of it.
const PART: char = '.';
/// How often a directory is emptied that others keep filling.
const ATTEMPTS: u32 = 8;

/// What became of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Removal {
    /// Nothing is left.
    Done,
    /// It is out of sight, and [`Volume::take_apart`] has to be tried again: somebody inside still writes there.
    Unfinished,
}

impl Volume {
    /// Removes what is at `path`, with everything below it. It is gone for everybody at once, and then taken apart.
    /// `name` must be unused.
    pub fn remove(&self, path: &str, name: &str) -> Result<Removal> {
        let (parent, last) = self.parent(path)?;
        renameat(&parent, &last, &self.work, name).map_err(failed("remove", path))?;
        match self.take_apart(name) {
            Ok(()) => Ok(Removal::Done),
            Err(error) => {
                tracing::warn!(%error, "a removed tree is still there, taking it apart goes on");
                Ok(Removal::Unfinished)
            }
        }
    }

    /// Removes what interrupted uploads and removals have left, and gives the names of trees that are still there.
    pub fn clean(&self) -> io::Result<Vec<String>> {
        let names: BTreeSet<String> = self
            .unfinished()?
            .iter()
            .map(|name| name.split_once(PART).map_or(name.as_str(), |(tree, _)| tree).to_owned())
            .collect();
        Ok(names.into_iter().filter(|name| self.take_apart(name).is_err()).collect())
    }

    /// Removes the tree `name` among the unfinished work, and what an earlier attempt has made of it; none is fine.
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

    /// Directories inside are moved up before they are emptied, so that no depth needs more than a few descriptors, and
    /// no path is ever followed. The numbers up to `taken` are in use.
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

/// The number of a part of the tree `name`; 0 is the tree itself.
fn number(part: &str, name: &str) -> Option<u32> {
    match part.strip_prefix(name)? {
        "" => Some(0),
        rest => rest.strip_prefix(PART)?.parse().ok(),
    }
}
