//! A nameless file for an upload until it is complete.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;

/// Directory for uploads whose target's file system cannot hold nameless files.
const ELSEWHERE: &str = "/tmp";

/// A file without a name, which is removed when it is closed, even if the agent dies.
#[derive(Debug)]
pub(super) struct Spool {
    /// File, open for reading and writing.
    pub(super) file: File,
    linkable: bool,
}

impl Spool {
    /// Makes a spool on the file system of the directory `near`, or elsewhere if that is not possible.
    ///
    /// The kernel reports writes to a nameless file to watchers of the directory it was made in, under a name like `#1234`.
    /// Hence the root directory is tried first: it is hardly ever watched.
    pub(super) fn open(near: &Path) -> io::Result<Self> {
        let device = |path: &Path| fs::metadata(path).map(|m| m.dev()).ok();
        let root = Path::new("/");
        let same = device(root) == device(near);
        for directory in same.then_some(root).into_iter().chain([near]) {
            match nameless(directory) {
                Ok(file) => return Ok(Self { file, linkable: true }),
                Err(error) if super::error::is_out_of_space(&error) => return Err(error),
                Err(_) => {}
            }
        }
        unlinked(Path::new(ELSEWHERE)).map(|file| Self { file, linkable: false })
    }

    /// Gives the file the name `target`. `Ok(false)` when this file cannot get a name there and its content has to be copied;
    /// `AlreadyExists` when the name is taken.
    pub(super) fn link(&self, target: &Path) -> io::Result<bool> {
        if !self.linkable {
            return Ok(false);
        }
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        match rustix::fs::linkat(CWD, own, CWD, target, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Ok(true),
            // Another mount of the same device, or no `/proc`.
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::PERM) => Ok(false),
            Err(Errno::NOENT) if !Path::new("/proc/self/fd").exists() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn nameless(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE.bits().cast_signed();
    OpenOptions::new().read(true).write(true).mode(0o644).custom_flags(flags).open(directory)
}

/// Creates a file and unlinks it, for file systems without nameless files.
fn unlinked(directory: &Path) -> io::Result<File> {
    match nameless(directory) {
        Ok(file) => Ok(file),
        Err(_) => {
            let path = directory.join(format!(".upload-{:016x}", random()));
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
            fs::remove_file(path)?;
            Ok(file)
        }
    }
}

/// A number that cannot be guessed: the standard library keys its hash maps with random bits.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn a_spool_has_no_name_until_it_is_linked() {
        let base = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(base.path()).unwrap();
        spool.file.write_all(b"content").unwrap();
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
        let target = base.path().join("target");
        assert!(spool.link(&target).unwrap());
        assert_eq!(fs::read(&target).unwrap(), b"content");
        assert_eq!(spool.link(&target).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_file_system_without_nameless_files_is_served_from_elsewhere() {
        let mut spool = Spool::open(Path::new("/proc/sys")).unwrap();
        spool.file.write_all(b"x").unwrap();
        spool.file.rewind().unwrap();
        let mut content = String::new();
        spool.file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "x");
        assert!(!spool.link(Path::new("/nonexistent/target")).unwrap());
    }
}
