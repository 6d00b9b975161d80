//! The tree that an archive is unpacked into. Every name is opened below its parent directory and no link is ever followed, so
//! that no entry can reach anything outside of the tree.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::error::{Result, StepError, shown};
use crate::filesystem::directories::Owner;

/// Limit on the directories above an entry. Each of them is an open descriptor while trees are merged and removed.
const MAX_DEPTH: usize = 256;
/// Mode of directories that the archive has no entry for.
pub(super) const DIRECTORY_MODE: u32 = 0o755;

/// A tree that is being unpacked.
pub(super) struct Tree {
    root: Rc<OwnedFd>,
    attributes: Attributes,
    /// The parent of the last entry: most entries have the same.
    last: Option<(Vec<u8>, Rc<OwnedFd>)>,
}

/// Attributes that all entries of a tree have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    /// Owner of everything.
    pub(super) owner: Owner,
    /// Mode of everything but links; that of the archive when unset.
    pub(super) mode: Option<u32>,
}

/// The parts of a path within a tree.
pub(super) struct Inside<'a> {
    path: &'a [u8],
    parts: Vec<&'a [u8]>,
}

impl<'a> Inside<'a> {
    /// Reads the path of an entry. A leading `/` does not count, as in tar.
    ///
    /// # Errors
    /// If the path leaves the tree or is too deep.
    pub(super) fn parse(path: &'a [u8]) -> Result<Self> {
        let mut parts = Vec::new();
        for part in path.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err(refused(path, "leaves the archive with `..`")),
                part if part.contains(&0) => return Err(refused(path, "has a zero byte in its name")),
                part => parts.push(part),
            }
        }
        if parts.len() > MAX_DEPTH {
            return Err(refused(path, &format!("is below more than {MAX_DEPTH} directories")));
        }
        Ok(Self { path, parts })
    }

    /// The names on the way from the root of the tree.
    pub(super) fn parts(&self) -> &[&'a [u8]] {
        &self.parts
    }

    /// The path for an error.
    pub(super) fn shown(&self) -> String {
        shown(self.path)
    }
}

/// Makes the error of an entry that cannot be unpacked.
pub(super) fn refused(path: &[u8], why: &str) -> StepError {
    StepError::invalid(format!("entry `{}` of the archive {why}", shown(path)))
}

impl Tree {
    /// Makes `root`, an empty directory, the root of a tree.
    pub(super) fn new(root: &Path, attributes: Attributes) -> Result<Self> {
        let failed = |e| StepError::file("prepare", root.display(), e);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(root, flags, Mode::empty()).map_err(failed)?;
        rustix::fs::fchown(&directory, Some(attributes.uid()), Some(attributes.gid())).map_err(failed)?;
        rustix::fs::fchmod(&directory, attributes.mode(DIRECTORY_MODE)).map_err(failed)?;
        Ok(Self { root: Rc::new(directory), attributes, last: None })
    }

    /// Creates a directory, or changes the mode of one that is there already.
    pub(super) fn directory(&mut self, at: &Inside<'_>, mode: u32) -> Result<()> {
        let failed = |e| StepError::file("create directory", at.shown(), e);
        let Some((name, above)) = at.parts.split_last() else {
            return rustix::fs::fchmod(&self.root, self.attributes.mode(mode)).map_err(failed);
        };
        let parent = self.parent(at, above)?;
        match rustix::fs::mkdirat(&parent, *name, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) if is_directory(&parent, name) => {}
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(&parent, *name, AtFlags::empty()).map_err(failed)?;
                rustix::fs::mkdirat(&parent, *name, Mode::RWXU).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        self.attributes.apply(&parent, name, mode).map_err(failed)
    }

    /// Creates a file, whose content `fill` writes.
    pub(super) fn file(
        &mut self,
        at: &Inside<'_>,
        mode: u32,
        fill: impl FnOnce(&mut File) -> Result<()>,
    ) -> Result<()> {
        let failed = |e| StepError::file("create", at.shown(), e);
        let (name, parent) = self.vacant(at)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        let mut file = File::from(file);
        fill(&mut file)?;
        let attributes = self.attributes;
        // In this order: a change of the owner takes set-user-id bits away.
        rustix::fs::fchown(&file, Some(attributes.uid()), Some(attributes.gid())).map_err(failed)?;
        rustix::fs::fchmod(&file, attributes.mode(mode)).map_err(failed)
    }

    /// Creates a symbolic link with any target.
    pub(super) fn symlink(&mut self, at: &Inside<'_>, target: &[u8]) -> Result<()> {
        let failed = |e| StepError::file("create link", at.shown(), e);
        let (name, parent) = self.vacant(at)?;
        rustix::fs::symlinkat(target, &parent, name).map_err(failed)?;
        self.attributes.own(&parent, name).map_err(failed)
    }

    /// Creates a further name of an earlier entry.
    pub(super) fn hard_link(&mut self, at: &Inside<'_>, target: &Inside<'_>) -> Result<()> {
        let missing =
            || refused(at.path, &format!("is a hard link to `{}`, which is not before it", target.shown()));
        if at.parts == target.parts {
            return Err(missing());
        }
        let (target_name, above) = target.parts.split_last().ok_or_else(missing)?;
        let mut directory = Rc::clone(&self.root);
        for part in above {
            directory = Rc::new(open_directory(&directory, part).map_err(|_| missing())?);
        }
        if is_directory(&directory, target_name) {
            return Err(refused(at.path, "is a hard link to a directory"));
        }
        let (name, parent) = self.vacant(at)?;
        match rustix::fs::linkat(&directory, *target_name, &parent, name, AtFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::NOENT) => Err(missing()),
            Err(error) => Err(StepError::file("create hard link", at.shown(), error)),
        }
    }

    /// Creates a named pipe.
    pub(super) fn fifo(&mut self, at: &Inside<'_>, mode: u32) -> Result<()> {
        let failed = |e| StepError::file("create pipe", at.shown(), e);
        let (name, parent) = self.vacant(at)?;
        rustix::fs::mknodat(&parent, name, FileType::Fifo, Mode::RUSR, 0).map_err(failed)?;
        self.attributes.apply(&parent, name, mode).map_err(failed)
    }

    /// The name and the parent directory of an entry, whose name is free. An archive may have several entries of one name, of
    /// which the last counts.
    fn vacant<'a>(&mut self, at: &Inside<'a>) -> Result<(&'a [u8], Rc<OwnedFd>)> {
        let (name, above) =
            at.parts.split_last().ok_or_else(|| refused(at.path, "has no name and is not a directory"))?;
        let parent = self.parent(at, above)?;
        match rustix::fs::unlinkat(&parent, *name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok((name, parent)),
            Err(Errno::ISDIR) => Err(refused(at.path, "replaces a directory of the archive")),
            Err(error) => Err(StepError::file("replace", at.shown(), error)),
        }
    }

    /// Opens the directory `above`, and creates what is missing.
    fn parent(&mut self, at: &Inside<'_>, above: &[&[u8]]) -> Result<Rc<OwnedFd>> {
        let path = above.join(&b'/');
        if let Some((last, directory)) = &self.last
            && *last == path
        {
            return Ok(Rc::clone(directory));
        }
        let mut directory = Rc::clone(&self.root);
        for part in above {
            let opened = match open_directory(&directory, part) {
                Err(Errno::NOENT) => {
                    let failed = |e| StepError::file("create the directory of", at.shown(), e);
                    rustix::fs::mkdirat(&directory, *part, Mode::RWXU).map_err(failed)?;
                    self.attributes.apply(&directory, part, DIRECTORY_MODE).map_err(failed)?;
                    open_directory(&directory, part)
                }
                opened => opened,
            };
            directory = Rc::new(opened.map_err(|error| match error {
                Errno::NOTDIR | Errno::LOOP => {
                    refused(at.path, &format!("is below `{}`, which is not a directory", shown(part)))
                }
                error => StepError::file("open the directory of", at.shown(), error),
            })?);
        }
        self.last = Some((path, Rc::clone(&directory)));
        Ok(directory)
    }
}

impl Attributes {
    fn uid(self) -> Uid {
        Uid::from_raw(self.owner.uid)
    }

    fn gid(self) -> Gid {
        Gid::from_raw(self.owner.gid)
    }

    fn mode(self, mode: u32) -> Mode {
        Mode::from_raw_mode(self.mode.unwrap_or(mode) & 0o7777)
    }

    fn own(self, parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
        rustix::fs::chownat(parent, name, Some(self.uid()), Some(self.gid()), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Sets owner and mode of an entry that is not a link.
    fn apply(self, parent: &OwnedFd, name: &[u8], mode: u32) -> rustix::io::Result<()> {
        self.own(parent, name)?;
        rustix::fs::chmodat(parent, name, self.mode(mode), AtFlags::empty())
    }
}

fn open_directory(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

fn is_directory(parent: &OwnedFd, name: &[u8]) -> bool {
    let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory)
}
