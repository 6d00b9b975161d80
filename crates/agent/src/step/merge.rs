//! Moves what was unpacked to where it belongs. Existing directories stay as they are, also where the destination has a link to
//! one; other existing files and links are replaced (contract: templates, section 9.3).

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use super::error::{Result, StepError, shown};

/// Opens a directory that a path of the build leads to; links are followed.
pub(super) fn open(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|e| StepError::file("open", path.display(), e))
}

/// Moves everything in `from` into `to`. `shown_to` is the path of `to`, for errors.
pub(super) fn contents(from: &OwnedFd, to: &OwnedFd, shown_to: &str) -> Result<()> {
    let failed = |e| StepError::file("list what was unpacked for", shown_to, e);
    // Names that have been moved away are not listed again, and none is added.
    for entry in Dir::read_from(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            one(from, name, to, name, shown_to)?;
        }
    }
    Ok(())
}

/// Moves `name` in `from` to `new_name` in `to`; a directory is merged with one that exists.
pub(super) fn one(from: &OwnedFd, name: &[u8], to: &OwnedFd, new_name: &[u8], shown_to: &str) -> Result<()> {
    let target = format!("{}/{}", shown_to.trim_end_matches('/'), shown(new_name));
    let failed = |e: Errno| StepError::file("create", &target, e);
    let moved = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    let is_directory = kind(&moved) == FileType::Directory;
    // Of the name itself, and of what a link there leads to.
    let existing = lookup(to, new_name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    let reached = lookup(to, new_name, AtFlags::empty()).map_err(failed)?;
    match (is_directory, existing, reached) {
        (true, Some(_), Some(FileType::Directory)) => {
            let (from, to) = (open_at(from, name, OFlags::NOFOLLOW), open_at(to, new_name, OFlags::empty()));
            contents(&from.map_err(failed)?, &to.map_err(failed)?, &target)
        }
        (true, Some(_), _) => Err(StepError::invalid(format!(
            "`{target}` exists and is not a directory, so that the directory of this name cannot be copied; remove it in an \
             earlier step"
        ))),
        (false, Some(FileType::Directory), _) => Err(StepError::invalid(format!(
            "`{target}` is a directory, so that the file of this name cannot be copied; remove it in an earlier step"
        ))),
        (_, _, _) => match rustix::fs::renameat(from, name, to, new_name) {
            Err(Errno::XDEV) => copy(from, name, to, new_name, &moved, &target),
            renamed => renamed.map_err(failed),
        },
    }
}

/// Copies what cannot be renamed, because the destination is on another file system. Hard links become files of their own.
fn copy(
    from: &OwnedFd,
    name: &[u8],
    to: &OwnedFd,
    new_name: &[u8],
    moved: &Stat,
    target: &str,
) -> Result<()> {
    let failed = |e: Errno| StepError::file("create", target, e);
    let mode = Mode::from_raw_mode(moved.st_mode & 0o7777);
    match kind(moved) {
        FileType::Directory => {
            rustix::fs::mkdirat(to, new_name, Mode::RWXU).map_err(failed)?;
            let (from, to) = (open_at(from, name, OFlags::NOFOLLOW), open_at(to, new_name, OFlags::NOFOLLOW));
            let to = to.map_err(failed)?;
            contents(&from.map_err(failed)?, &to, target)?;
            return give(&to, moved).and_then(|()| rustix::fs::fchmod(&to, mode)).map_err(failed);
        }
        FileType::RegularFile => {
            let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let source = rustix::fs::openat(from, name, read, Mode::empty()).map_err(failed)?;
            remove(to, new_name).map_err(failed)?;
            let copied = rustix::fs::openat(to, new_name, write, Mode::RUSR | Mode::WUSR).map_err(failed)?;
            let (mut source, mut copied) = (File::from(source), File::from(copied));
            io::copy(&mut source, &mut copied).map_err(|e| StepError::file("write", target, e))?;
            return give(&copied, moved).and_then(|()| rustix::fs::fchmod(&copied, mode)).map_err(failed);
        }
        FileType::Symlink => {
            let link = rustix::fs::readlinkat(from, name, Vec::new()).map_err(failed)?;
            remove(to, new_name).map_err(failed)?;
            rustix::fs::symlinkat(link, to, new_name).map_err(failed)?;
        }
        _ => {
            remove(to, new_name).map_err(failed)?;
            rustix::fs::mknodat(to, new_name, FileType::Fifo, mode, 0).map_err(failed)?;
        }
    }
    let (uid, gid) = owner(moved);
    rustix::fs::chownat(to, new_name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)
}

fn lookup(directory: &OwnedFd, name: &[u8], flags: AtFlags) -> rustix::io::Result<Option<FileType>> {
    match rustix::fs::statat(directory, name, flags) {
        Ok(found) => Ok(Some(kind(&found))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(error) => Err(error),
    }
}

fn open_at(directory: &OwnedFd, name: &[u8], follow: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | follow;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

fn remove(directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}

fn kind(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

fn owner(found: &Stat) -> (Uid, Gid) {
    (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid))
}

fn give(file: impl std::os::fd::AsFd, like: &Stat) -> rustix::io::Result<()> {
    let (uid, gid) = owner(like);
    rustix::fs::fchown(file, Some(uid), Some(gid))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_copy_is_like_a_move() {
        let base = tempfile::tempdir().unwrap();
        let (from, to) = (base.path().join("from"), base.path().join("to"));
        fs::create_dir_all(from.join("d/e")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("d/e/f"), "content").unwrap();
        fs::set_permissions(from.join("d/e/f"), std::os::unix::fs::PermissionsExt::from_mode(0o4750))
            .unwrap();
        fs::set_permissions(from.join("d/e"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink("nowhere", from.join("d/l")).unwrap();
        let (source, target) = (open(&from).unwrap(), open(&to).unwrap());
        let moved = rustix::fs::statat(&source, "d", AtFlags::SYMLINK_NOFOLLOW).unwrap();
        copy(&source, b"d", &target, b"d", &moved, "to/d").unwrap();
        assert_eq!(fs::read(to.join("d/e/f")).unwrap(), b"content");
        assert_eq!(fs::metadata(to.join("d/e/f")).unwrap().mode() & 0o7777, 0o4750);
        assert_eq!(fs::metadata(to.join("d/e")).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::read_link(to.join("d/l")).unwrap(), Path::new("nowhere"));
    }
}
