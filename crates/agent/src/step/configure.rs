//! What every finished template has (contract: templates, section 9.4): the file `/.e2b`, the account `user`, and directories
//! that everybody may write to.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use super::account;
use super::error::{Result, StepError};

/// Account that clients run as unless they name another.
const USER: &str = "user";
/// Limit on the depth of directories; what is deeper stays as it is.
const MAX_DEPTH: usize = 256;
/// Mode of directories that everybody may write to.
const SHARED: u32 = 0o777;

/// Is called with the parent directory, the name and the attributes of a file.
type Visit<'a> = dyn FnMut(&OwnedFd, &[u8], &Stat) -> rustix::io::Result<()> + 'a;

/// Prepares the system at `root`.
pub(super) fn run(root: &Path, template_id: &str, build_id: &str) -> Result<()> {
    let facts = format!("ENV_ID={template_id}\nTEMPLATE_ID={template_id}\nBUILD_ID={build_id}\n");
    let file = root.join(".e2b");
    let written =
        fs::write(&file, facts).and_then(|()| fs::set_permissions(&file, PermissionsExt::from_mode(0o644)));
    written.map_err(|e| StepError::file("write", file.display(), e))?;

    let account = account::ensure(root, USER, true)?;
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    directory(&root.join("home"), 0o755)?;
    let home = root.join("home").join(USER);
    directory(&home, 0o755)?;
    walk(&home, &mut |parent, name, found| {
        if (found.st_uid, found.st_gid) == (account.uid, account.gid) {
            return Ok(());
        }
        rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
    })?;

    directory(&root.join("tmp"), 0o1777)?;
    directory(&root.join("code"), SHARED)?;
    let shared = &mut |parent: &OwnedFd, name: &[u8], found: &Stat| {
        let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        if !is_directory || found.st_mode & SHARED == SHARED {
            return Ok(());
        }
        let mode = Mode::from_raw_mode(found.st_mode & 0o7000 | SHARED);
        rustix::fs::chmodat(parent, name, mode, AtFlags::empty())
    };
    walk(&root.join("code"), shared)?;
    let local = root.join("usr/local");
    // Directories only: a change of every file would put a copy of it into the template.
    if local.is_dir() { walk(&local, shared) } else { Ok(()) }
}

/// Creates a directory unless there is one.
fn directory(path: &Path, mode: u32) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let created = DirBuilder::new()
        .mode(0o700)
        .create(path)
        .and_then(|()| fs::set_permissions(path, PermissionsExt::from_mode(mode)));
    created.map_err(|e| StepError::file("create directory", path.display(), e))
}

/// Calls `visit` for `top` and everything below it on the same file system. Links are visited and not followed.
fn walk(top: &Path, visit: &mut Visit<'_>) -> Result<()> {
    let failed = |e: Errno| StepError::file("prepare", top.display(), e);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(top, flags, Mode::empty()).map_err(failed)?;
    let found = rustix::fs::fstat(&directory).map_err(failed)?;
    visit(&directory, b".", &found).map_err(failed)?;
    below(&directory, found.st_dev, MAX_DEPTH, visit).map_err(|e| StepError::File {
        action: format!("prepare the files in `{}`", top.display()),
        source: io::Error::from(e),
    })
}

fn below(directory: &OwnedFd, device: u64, depth: usize, visit: &mut Visit<'_>) -> rustix::io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let found = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            // Removed by a process that still runs.
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error),
        };
        let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        if is_directory && found.st_dev != device {
            continue;
        }
        match visit(directory, name, &found) {
            Err(Errno::NOENT) => continue,
            visited => visited?,
        }
        if is_directory && depth > 0 {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let inner = rustix::fs::openat(directory, name, flags, Mode::empty())?;
            below(&inner, device, depth - 1, visit)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn an_empty_system_is_prepared() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("home/user/a/b")).unwrap();
        fs::write(at("home/user/a/b/file"), "").unwrap();
        symlink("/etc/shadow", at("home/user/link")).unwrap();
        fs::create_dir_all(at("usr/local/lib/x")).unwrap();
        fs::write(at("usr/local/lib/file"), "").unwrap();
        fs::set_permissions(at("usr/local/lib/file"), fs::Permissions::from_mode(0o644)).unwrap();
        let outside = fs::metadata("/etc").unwrap().uid();
        run(root.path(), "template", "build").unwrap();
        run(root.path(), "template", "build").unwrap();
        assert_eq!(
            fs::read_to_string(at(".e2b")).unwrap(),
            "ENV_ID=template\nTEMPLATE_ID=template\nBUILD_ID=build\n"
        );
        for path in ["home/user", "home/user/a/b", "home/user/a/b/file", "home/user/link"] {
            assert_eq!(fs::symlink_metadata(at(path)).unwrap().uid(), 1000, "{path}");
        }
        assert_eq!(fs::metadata("/etc").unwrap().uid(), outside);
        let mode = |path: &str| fs::metadata(at(path)).unwrap().mode() & 0o7777;
        assert_eq!((mode("usr/local"), mode("usr/local/lib/x"), mode("code")), (0o777, 0o777, 0o777));
        assert_eq!((mode("usr/local/lib/file"), mode("tmp")), (0o644, 0o1777));
    }
}
