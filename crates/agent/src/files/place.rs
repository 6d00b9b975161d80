//! Puts a complete upload in its place, in one of two ways.
//!
//! *A new file* gets its name when content, owner and metadata are complete, so nobody ever sees half of it. Watchers of the
//! directory expect CREATE, CHMOD and WRITE from an upload, as the original service creates, chowns and fills the file; the
//! name alone gives them CREATE, so owner and length are set once more afterwards, to their present values.
//!
//! *An existing file* keeps its inode, with mode, hard links and open descriptors, so it cannot be replaced by a rename; that
//! would also look different to watchers. It is given to its new owner and takes over the content: by sharing extents where
//! the file system can (atomically for readers), else by a copy, for which space is reserved first. A broken upload or a full
//! disk leaves the old content in place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::error::is_out_of_space;
use super::receive::Received;
use super::spool::Spool;
use crate::filesystem::directories::Owner;
use crate::filesystem::metadata::{self, Metadata};

/// Limit on links followed before they count as a loop, as in the kernel.
const MAX_LINKS: usize = 40;
/// Limit on retries when others create or remove the target between two steps.
const MAX_RACES: usize = 16;

/// Makes `received` the content of the file at `target`, which then belongs to `owner`, and `wanted` its metadata.
/// Links are followed. Returns the metadata as the file system keeps it.
pub(super) fn place(
    mut received: Received,
    target: &Path,
    owner: Owner,
    wanted: &Metadata,
) -> io::Result<Metadata> {
    let target = follow_links(target)?;
    for _ in 0..MAX_RACES {
        let existing = OpenOptions::new().write(true).custom_flags(no_follow()).open(&target);
        match existing {
            Ok(file) => {
                overwrite(&file, received, owner)?;
                metadata::replace(&file, wanted)?;
                return Ok(metadata::read_open(&file));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) => {}
        }
        match create(received, &target, owner, wanted) {
            Ok(kept) => return Ok(kept),
            // Another process was faster; now there is a file to overwrite.
            Err(Failed { received: back, error }) if error.kind() == io::ErrorKind::AlreadyExists => {
                received = back;
            }
            Err(Failed { error, .. }) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file comes and goes all the time"))
}

fn no_follow() -> i32 {
    OFlags::NOFOLLOW.bits().cast_signed()
}

/// Resolves the file that `target` refers to, which need not exist.
pub(super) fn follow_links(target: &Path) -> io::Result<PathBuf> {
    let mut target = target.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&target) {
            Ok(next) => target = target.parent().unwrap_or(Path::new("/")).join(next),
            // Not a link, or missing.
            Err(_) => return Ok(target),
        }
    }
    Err(Errno::LOOP.into())
}

/// A failed creation, with the content for another attempt.
struct Failed {
    received: Received,
    error: io::Error,
}

fn create(received: Received, target: &Path, owner: Owner, wanted: &Metadata) -> Result<Metadata, Failed> {
    let length = received.len();
    let spool = match received {
        Received::Large(spool, _) => Ok(spool),
        Received::Small(bytes) => spool_small(&bytes, target).map_err(|error| (bytes, error)),
    };
    let spool = match spool {
        Ok(spool) => spool,
        Err((bytes, error)) => return Err(Failed { received: Received::Small(bytes), error }),
    };
    let linked = fchown(&spool.file, Some(owner.uid), Some(owner.gid))
        .and_then(|()| metadata::replace(&spool.file, wanted))
        .and_then(|()| spool.link(target));
    match linked {
        Ok(true) => {
            announce(&spool.file, target, owner, length);
            Ok(metadata::read_open(&spool.file))
        }
        Ok(false) => create_by_copy(&spool.file, target, owner, wanted)
            .map_err(|error| Failed { received: Received::Large(spool, length), error }),
        Err(error) => Err(Failed { received: Received::Large(spool, length), error }),
    }
}

fn spool_small(bytes: &[u8], target: &Path) -> io::Result<Spool> {
    let mut spool = Spool::open(target.parent().unwrap_or(Path::new("/")))?;
    spool.file.write_all(bytes)?;
    Ok(spool)
}

/// Gives watchers the events they expect after CREATE. Events carry the name a file was opened under, so it is opened once
/// more. Others may have replaced it by now, and a failure here does not affect the upload.
fn announce(placed: &File, target: &Path, owner: Owner, length: u64) {
    let announced = || -> io::Result<()> {
        let file = OpenOptions::new().write(true).custom_flags(no_follow()).open(target)?;
        let identity = |m: &fs::Metadata| (m.dev(), m.ino(), m.len());
        if identity(&file.metadata()?) != identity(&placed.metadata()?) {
            return Ok(());
        }
        fchown(&file, Some(owner.uid), Some(owner.gid))?;
        if length > 0 {
            file.set_len(length)?;
        }
        Ok(())
    };
    if let Err(error) = announced() {
        tracing::debug!(target_path = %target.display(), %error, "upload not announced to watchers");
    }
}

/// Creates the file on file systems without nameless files.
fn create_by_copy(from: &File, target: &Path, owner: Owner, wanted: &Metadata) -> io::Result<Metadata> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o666).open(target)?;
    let filled = fchown(&file, Some(owner.uid), Some(owner.gid))
        .and_then(|()| copy(from, &file))
        .and_then(|()| metadata::replace(&file, wanted));
    if let Err(error) = filled {
        // Only this request knows the partial file; the first error is the one to report.
        let _ = fs::remove_file(target);
        return Err(error);
    }
    Ok(metadata::read_open(&file))
}

fn overwrite(file: &File, received: Received, owner: Owner) -> io::Result<()> {
    let old = file.metadata()?;
    if !old.is_file() {
        // A device or a pipe only takes bytes.
        return match received {
            Received::Small(bytes) => (&*file).write_all(&bytes),
            Received::Large(spool, _) => copy(&spool.file, file),
        };
    }
    fchown(file, Some(owner.uid), Some(owner.gid))?;
    let length = received.len();
    if length > old.len() {
        reserve(file, length, &old)?;
    } else {
        file.set_len(length)?;
    }
    match received {
        Received::Small(bytes) if bytes.is_empty() => Ok(()),
        Received::Small(bytes) => file.write_all_at(&bytes, 0),
        Received::Large(spool, _) => match rustix::fs::ioctl_ficlone(file, &spool.file) {
            Ok(()) => Ok(()),
            Err(_) => copy(&spool.file, file),
        },
    }
}

/// Reserves space for a file that grows, so that it does not run out halfway. Watchers see a WRITE either way.
fn reserve(file: &File, length: u64, old: &fs::Metadata) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, length) {
        Ok(()) => Ok(()),
        Err(error) if is_out_of_space(&error.into()) => Err(error.into()),
        Err(_) => file.set_len(old.len()),
    }
}

/// Copies all of `from` over the beginning of `to`, within the kernel where possible.
fn copy(mut from: &File, mut to: &File) -> io::Result<()> {
    from.rewind()?;
    io::copy(&mut from, &mut to).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn owner() -> Owner {
        Owner { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
    }

    fn small(content: &[u8]) -> Received {
        Received::Small(content.to_vec())
    }

    fn large(content: &[u8], near: &Path) -> Received {
        let mut spool = Spool::open(near).unwrap();
        spool.file.write_all(content).unwrap();
        Received::Large(spool, content.len() as u64)
    }

    fn put(received: Received, target: &Path) -> io::Result<Metadata> {
        place(received, target, owner(), &Metadata::new())
    }

    #[test]
    fn new_files_have_the_usual_mode() {
        let base = tempfile::tempdir().unwrap();
        for (name, received) in
            [("small", small(b"abc")), ("large", large(b"abc", base.path())), ("empty", small(b""))]
        {
            let target = base.path().join(name);
            let length = received.len();
            put(received, &target).unwrap();
            let found = fs::metadata(&target).unwrap();
            assert_eq!((found.mode() & 0o7777, found.len()), (0o644, length), "{name}");
        }
    }

    #[test]
    fn existing_files_keep_inode_mode_links_and_readers() {
        let base = tempfile::tempdir().unwrap();
        let (target, twin) = (base.path().join("target"), base.path().join("twin"));
        fs::write(&target, "old content").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o750)).unwrap();
        fs::hard_link(&target, &twin).unwrap();
        let before = fs::metadata(&target).unwrap();
        let contents: [&[u8]; 4] = [b"new", b"a much longer new content", b"", b"x"];
        for content in contents {
            for received in [small(content), large(content, base.path())] {
                put(received, &target).unwrap();
                assert_eq!(fs::read(&twin).unwrap(), content);
            }
        }
        let after = fs::metadata(&target).unwrap();
        assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()));
    }

    #[test]
    fn links_are_followed_even_to_files_that_do_not_exist_yet() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        symlink("b", at("a")).unwrap();
        symlink("c", at("b")).unwrap();
        put(small(b"1"), &at("a")).unwrap();
        put(large(b"2", base.path()), &at("a")).unwrap();
        assert_eq!(fs::read(at("c")).unwrap(), b"2");
        assert!(fs::symlink_metadata(at("a")).unwrap().is_symlink());
        symlink("loop", at("loop")).unwrap();
        assert!(put(small(b"x"), &at("loop")).is_err());
    }

    #[test]
    fn a_directory_is_not_a_target() {
        let base = tempfile::tempdir().unwrap();
        let error = put(small(b"x"), base.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn devices_take_the_bytes() {
        put(small(b"x"), Path::new("/dev/null")).unwrap();
    }

    #[test]
    fn a_file_system_without_nameless_files_is_served_by_copying() {
        let base = tempfile::tempdir().unwrap();
        let target = base.path().join("target");
        let mut from = tempfile::tempfile().unwrap();
        from.write_all(b"content").unwrap();
        create_by_copy(&from, &target, owner(), &Metadata::new()).unwrap();
        let mut content = String::new();
        File::open(&target).unwrap().read_to_string(&mut content).unwrap();
        assert_eq!(content, "content");
    }

    #[test]
    fn readers_of_a_new_file_see_all_of_it_or_nothing() {
        let base = tempfile::tempdir().unwrap();
        let content = vec![5; 300_000];
        let names: Vec<_> = (0..50).map(|n| base.path().join(n.to_string())).collect();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                for name in &names {
                    let found = loop {
                        if let Ok(found) = fs::read(name) {
                            break found;
                        }
                    };
                    assert_eq!(found.len(), content.len());
                }
            });
            for name in &names {
                put(small(&content), name).unwrap();
            }
            reader.join().unwrap();
        });
    }
}
