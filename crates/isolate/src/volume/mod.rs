//! Files of a volume, as the host reads and changes them while sandboxes do the same. Nothing a sandbox leaves there may
//! lead the host astray: every path is resolved by the kernel with the volume as its root, so a symbolic link reaches no
//! file of the host, however it is swapped meanwhile. All of it blocks.

mod list;
mod remove;
mod write;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::fs::{chmodat, chownat, fstat, mkdirat, open, openat2, readlinkat};
use rustix::io::Errno;

pub use remove::Removal;
pub use write::Upload;

/// How often a path is tried again that others rename meanwhile.
const ATTEMPTS: u32 = 16;
/// Ids inside a sandbox.
pub const MOST_ID: u32 = 65_535;

/// A volume that is open.
#[derive(Debug)]
pub struct Volume {
    content: OwnedFd,
    work: OwnedFd,
}

/// What there is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Absolute, with the volume as root.
    pub path: String,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner, as inside a sandbox.
    pub uid: u32,
    /// Group, as inside a sandbox.
    pub gid: u32,
    /// Nanoseconds since 1970.
    pub accessed_ns: i128,
    /// Nanoseconds since 1970.
    pub modified_ns: i128,
    /// Nanoseconds since 1970.
    pub changed_ns: i128,
    /// Where a symbolic link leads.
    pub target: Option<String>,
}

/// Kinds of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Anything else.
    Other,
}

/// Owner and permissions to set; what is absent stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Owner, as inside a sandbox.
    pub uid: Option<u32>,
    /// Group, as inside a sandbox.
    pub gid: Option<u32>,
    /// Permission bits.
    pub mode: Option<u32>,
}

/// Why a file operation was not done.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// There is nothing at the path, or no directory above it.
    #[error("path '{0}' does not exist")]
    NotFound(String),
    /// There is something at the path already.
    #[error("path '{0}' exists already")]
    Exists(String),
    /// What is there is not what the operation is for.
    #[error("{0}")]
    Refused(String),
    /// The volume is full.
    #[error("the volume is full")]
    Full,
    /// The kernel refused for another reason.
    #[error("failed to {action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
}

type Result<T> = std::result::Result<T, VolumeError>;

impl Volume {
    /// Opens the volume kept in `directory`.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let part = |name: &str| {
            open(directory.join(name), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        };
        Ok(Self { content: part("content")?, work: part("work")? })
    }

    /// What is at `path`; a symbolic link there is not followed.
    pub fn stat(&self, path: &str) -> Result<Entry> {
        let fd = self.resolve(path, OFlags::PATH | OFlags::NOFOLLOW)?;
        entry(&fd, path)
    }

    /// The regular file at `path`, to be read, and its size in bytes.
    pub fn read(&self, path: &str) -> Result<(File, u64)> {
        // Looked at before it is opened: opening a pipe waits, a socket fails, and a device does whatever it does.
        let found = self.resolve(path, OFlags::PATH)?;
        let stat = fstat(&found).map_err(failed("inspect a file", path))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(VolumeError::Refused(format!("path '{path}' is not a file")));
        }
        // Nor is a lease waited for that somebody inside has on it.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open(by_number(&found), flags, Mode::empty()).map_err(failed("open", path))?;
        Ok((file.into(), u64::try_from(stat.st_size).unwrap_or(0)))
    }

    /// Makes a directory; with `parents` also those above it, and one that is there already is fine.
    pub fn make_directory(&self, path: &str, attributes: Attributes, parents: bool) -> Result<Entry> {
        let names: Vec<&str> = names(path).collect();
        if names.is_empty() && !parents {
            return Err(VolumeError::Exists(path.to_owned()));
        }
        if parents {
            for end in 1..names.len() {
                match self.make_one(&names[..end].join("/"), Attributes::default()) {
                    Ok(()) | Err(VolumeError::Exists(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let whole = names.join("/");
        match self.make_one(&whole, attributes) {
            Ok(()) => {}
            Err(VolumeError::Exists(_)) if parents => {
                self.resolve(&whole, OFlags::PATH | OFlags::DIRECTORY)?;
            }
            Err(error) => return Err(error),
        }
        self.stat(&whole)
    }

    /// Changes owner and permissions of what is at `path`.
    pub fn set_attributes(&self, path: &str, attributes: Attributes) -> Result<Entry> {
        let fd = self.resolve(path, OFlags::PATH | OFlags::NOFOLLOW)?;
        apply(&fd, attributes).map_err(failed("change attributes", path))?;
        entry(&fd, path)
    }

    fn make_one(&self, path: &str, attributes: Attributes) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        mkdirat(&parent, &name, Mode::from_raw_mode(0o700)).map_err(failed("make a directory", path))?;
        let made = self.resolve(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY)?;
        let mode = attributes.mode.or(Some(0o755));
        apply(&made, Attributes { mode, ..owned(attributes) }).map_err(failed("change attributes", path))
    }

    /// The directory above `path`, and the last name of it.
    fn parent(&self, path: &str) -> Result<(OwnedFd, String)> {
        let names: Vec<&str> = names(path).collect();
        match names.split_last() {
            Some((&name, above)) if name != ".." => {
                let parent = self.resolve(&above.join("/"), OFlags::PATH | OFlags::DIRECTORY)?;
                Ok((parent, name.to_owned()))
            }
            _ => Err(VolumeError::Refused(format!("path '{path}' names no entry of a directory"))),
        }
    }

    fn resolve(&self, path: &str, flags: OFlags) -> Result<OwnedFd> {
        let relative = names(path).collect::<Vec<_>>().join("/");
        let relative = if relative.is_empty() { "." } else { relative.as_str() };
        let limits = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let mut result = Err(Errno::AGAIN);
        for _ in 0..ATTEMPTS {
            result = openat2(&self.content, relative, flags | OFlags::CLOEXEC, Mode::empty(), limits);
            if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        result.map_err(failed("open", path))
    }
}

/// The names of a path; `.` and empty ones mean nothing.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty() && *name != ".")
}

/// Files made from outside belong to the first ordinary user of a template, as those made inside mostly do.
fn owned(attributes: Attributes) -> Attributes {
    const USER: u32 = 1000;
    Attributes {
        uid: attributes.uid.or(Some(USER)),
        gid: attributes.gid.or(Some(USER)),
        mode: attributes.mode,
    }
}

fn apply(fd: &OwnedFd, attributes: Attributes) -> rustix::io::Result<()> {
    let (uid, gid) = (attributes.uid.map(Uid::from_raw), attributes.gid.map(Gid::from_raw));
    if uid.is_some() || gid.is_some() {
        chownat(fd, "", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    // After the owner, whose change would take bits away.
    if let Some(mode) = attributes.mode {
        chmodat(CWD, by_number(fd), Mode::from_raw_mode(mode), AtFlags::empty())?;
    }
    Ok(())
}

/// The only way from a path descriptor to what it is of.
fn by_number(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

fn entry(fd: &OwnedFd, path: &str) -> Result<Entry> {
    let stat = fstat(fd).map_err(failed("inspect", path))?;
    let target = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => Some(readlinkat(fd, "", Vec::new()).map_err(failed("read a link", path))?),
        _ => None,
    };
    Ok(describe(&stat, path, target.map(|target| text(target.into_bytes()))))
}

fn describe(stat: &Stat, path: &str, target: Option<String>) -> Entry {
    const SECOND: i128 = 1_000_000_000;
    Entry {
        path: format!("/{}", names(path).collect::<Vec<_>>().join("/")),
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Symlink,
            _ => EntryKind::Other,
        },
        size: size(stat),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        accessed_ns: i128::from(stat.st_atime) * SECOND + i128::from(stat.st_atime_nsec),
        modified_ns: i128::from(stat.st_mtime) * SECOND + i128::from(stat.st_mtime_nsec),
        changed_ns: i128::from(stat.st_ctime) * SECOND + i128::from(stat.st_ctime_nsec),
        target,
    }
}

/// Of a directory, what ext4 would say, as sandboxes are told too: whole blocks, at least one.
fn size(stat: &Stat) -> u64 {
    const BLOCK: u64 = 4096;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => size.max(1).next_multiple_of(BLOCK),
        _ => size,
    }
}

/// Names need not be UTF-8; what is not is shown as well as it can be.
fn text(bytes: Vec<u8>) -> String {
    OsString::from_vec(bytes).to_string_lossy().into_owned()
}

fn failed<'a>(action: &'static str, path: &'a str) -> impl Fn(Errno) -> VolumeError + 'a {
    move |errno| match errno {
        Errno::NOENT => VolumeError::NotFound(path.to_owned()),
        Errno::EXIST => VolumeError::Exists(path.to_owned()),
        Errno::NOTDIR => {
            VolumeError::Refused(format!("path '{path}' is not, or leads through what is not, a directory"))
        }
        Errno::ISDIR => VolumeError::Refused(format!("path '{path}' is a directory")),
        Errno::LOOP => VolumeError::Refused(format!("path '{path}' leads through too many links")),
        Errno::INVAL | Errno::NAMETOOLONG => VolumeError::Refused("path is not valid".into()),
        Errno::AGAIN => VolumeError::Refused(format!("path '{path}' is in use inside a sandbox, try again")),
        Errno::OPNOTSUPP => VolumeError::Refused(format!("path '{path}' is a link, which has no mode")),
        Errno::NOSPC | Errno::DQUOT => VolumeError::Full,
        errno => VolumeError::Io { action, source: errno.into() },
    }
}

#[cfg(test)]
mod tests;
