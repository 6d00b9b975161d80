//! Files below a directory that a sandbox or a build step may change at the same moment, such as a volume. The kernel
//! resolves every path with that directory as its root, so no symbolic link reaches a file of the host, even one that is
//! swapped while the path is resolved. All calls block.

#[cfg(any(test, fuzzing, debug_assertions))]
pub mod fuzzing;
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
use serde::{Deserialize, Serialize};

pub use remove::Removal;
pub use write::Upload;

/// Number of attempts to resolve a path that is renamed meanwhile.
const ATTEMPTS: u32 = 16;
/// Largest user or group id inside a sandbox.
pub const MAX_ID: u32 = 65_535;

/// A directory tree that is open: `content` is the root of its paths, `work` beside it holds unfinished uploads and removed
/// trees.
#[derive(Debug)]
pub struct FileTree {
    content: OwnedFd,
    work: OwnedFd,
}

/// A file, directory or link at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Absolute path, with the tree as root.
    pub path: String,
    /// Kind of file.
    pub kind: EntryKind,
    /// Size, bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner, as inside a sandbox.
    pub uid: u32,
    /// Group, as inside a sandbox.
    pub gid: u32,
    /// Time of the last access, nanoseconds since 1970.
    pub accessed_ns: i128,
    /// Time of the last change of the contents, nanoseconds since 1970.
    pub modified_ns: i128,
    /// Time of the last change of the attributes, nanoseconds since 1970.
    pub changed_ns: i128,
    /// Target of a symbolic link.
    pub target: Option<String>,
}

/// Kinds of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A pipe, socket or device.
    Other,
}

/// Owner and permissions to set; absent ones stay as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Owner, as inside a sandbox.
    pub uid: Option<u32>,
    /// Group, as inside a sandbox.
    pub gid: Option<u32>,
    /// Permission bits.
    pub mode: Option<u32>,
}

/// Reason why a file operation was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The path does not exist, or the directory above it does not.
    #[error("path '{0}' does not exist")]
    NotFound(String),
    /// The path exists already.
    #[error("path '{0}' exists already")]
    Exists(String),
    /// The operation does not apply to this path; the text says why.
    #[error("{0}")]
    Refused(String),
    /// The disk limit of the tree is reached.
    #[error("the volume is full")]
    Full,
    /// The kernel refused for another reason.
    #[error("failed to {action}")]
    Io {
        /// Action that failed.
        action: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
}

type Result<T> = std::result::Result<T, FileError>;

impl FileTree {
    /// Opens the tree kept in `directory`, which holds `content` and `work`.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let part = |name: &str| {
            open(directory.join(name), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        };
        Ok(Self { content: part("content")?, work: part("work")? })
    }

    /// Describes the entry at `path`; a symbolic link there is not followed.
    pub fn stat(&self, path: &str) -> Result<Entry> {
        let fd = self.resolve(path, OFlags::PATH | OFlags::NOFOLLOW)?;
        entry(&fd, path)
    }

    /// Opens the regular file at `path` for reading; returns it with its size in bytes.
    pub fn read(&self, path: &str) -> Result<(File, u64)> {
        // Inspected before it is opened: opening a pipe blocks, opening a socket fails, opening a device may have effects.
        let found = self.resolve(path, OFlags::PATH)?;
        let stat = fstat(&found).map_err(failed("inspect a file", path))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(FileError::Refused(format!("path '{path}' is not a file")));
        }
        // Non-blocking: a process inside may hold a lease on the file.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open(by_number(&found), flags, Mode::empty()).map_err(failed("open", path))?;
        Ok((file.into(), u64::try_from(stat.st_size).unwrap_or(0)))
    }

    /// Creates a directory. With `parents`, also creates those above it and accepts one that exists.
    pub fn make_directory(&self, path: &str, attributes: Attributes, parents: bool) -> Result<Entry> {
        let names: Vec<&str> = names(path).collect();
        if names.is_empty() {
            return if parents { self.stat(path) } else { Err(FileError::Exists(path.to_owned())) };
        }
        if parents {
            for end in 1..names.len() {
                match self.make_one(&names[..end].join("/"), Attributes::default()) {
                    Ok(()) | Err(FileError::Exists(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let whole = names.join("/");
        match self.make_one(&whole, attributes) {
            Ok(()) => {}
            Err(FileError::Exists(_)) if parents => {
                self.resolve(&whole, OFlags::PATH | OFlags::DIRECTORY)?;
            }
            Err(error) => return Err(error),
        }
        self.stat(&whole)
    }

    /// Changes owner and permissions of the entry at `path`.
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

    /// Opens the directory above `path`; returns it with the last name of the path.
    fn parent(&self, path: &str) -> Result<(OwnedFd, String)> {
        let names: Vec<&str> = names(path).collect();
        match names.split_last() {
            Some((&name, above)) if name != ".." => {
                let parent = self.resolve(&above.join("/"), OFlags::PATH | OFlags::DIRECTORY)?;
                Ok((parent, name.to_owned()))
            }
            _ => Err(FileError::Refused(format!("path '{path}' names no entry of a directory"))),
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

/// Splits a path into names; `.` and empty names are left out.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty() && *name != ".")
}

/// Fills in the owner of files created from outside: the first ordinary user of a template, as for most files created
/// inside.
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
    // After the owner, because a change of owner clears the set-id bits.
    if let Some(mode) = attributes.mode {
        chmodat(CWD, by_number(fd), Mode::from_raw_mode(mode), AtFlags::empty())?;
    }
    Ok(())
}

/// Path that leads from a path descriptor to its file; there is no other way.
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

/// Size of an entry. A directory has whole blocks, at least one, as on ext4 and as sandboxes see it.
fn size(stat: &Stat) -> u64 {
    const BLOCK: u64 = 4096;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => size.max(1).next_multiple_of(BLOCK),
        _ => size,
    }
}

/// Text of a name; bytes that are not UTF-8 are replaced.
fn text(bytes: Vec<u8>) -> String {
    OsString::from_vec(bytes).to_string_lossy().into_owned()
}

fn failed<'a>(action: &'static str, path: &'a str) -> impl Fn(Errno) -> FileError + 'a {
    move |errno| match errno {
        Errno::NOENT => FileError::NotFound(path.to_owned()),
        Errno::EXIST => FileError::Exists(path.to_owned()),
        Errno::NOTDIR => {
            FileError::Refused(format!("path '{path}' is not, or leads through what is not, a directory"))
        }
        Errno::ISDIR => FileError::Refused(format!("path '{path}' is a directory")),
        Errno::LOOP => FileError::Refused(format!("path '{path}' leads through too many links")),
        Errno::INVAL | Errno::NAMETOOLONG => FileError::Refused("path is not valid".into()),
        Errno::AGAIN => FileError::Refused(format!("path '{path}' is in use inside a sandbox, try again")),
        Errno::OPNOTSUPP => FileError::Refused(format!("path '{path}' is a link, which has no mode")),
        Errno::NOSPC | Errno::DQUOT => FileError::Full,
        errno => FileError::Io { action, source: errno.into() },
    }
}

#[cfg(test)]
mod tests;
