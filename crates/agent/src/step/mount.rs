//! Mounts of a command of a build: files that it sees at a path, and that no snapshot has. A sandbox cannot mount anything, so they are put
//! there before the command and removed after it. What is at the path is set aside meanwhile.

use std::fs;
use std::path::{Path, PathBuf};

use super::copy::{self, Copy};
use super::error::{Result, StepError};
use super::{owner, resolve};
use crate::account::Accounts;
use crate::filesystem::directories::{self, Owner};

/// Name of what was set aside.
const ASIDE: &str = "kept";

/// The arguments of a mount.
pub(super) struct Mount<'a> {
    /// Path of an archive, or without `source` of a file. It is removed.
    pub(super) archive: &'a Path,
    /// Path within the archive.
    pub(super) source: Option<&'a str>,
    /// Absolute path in the sandbox. What is there is set aside.
    pub(super) target: &'a str,
    /// Owner of the files.
    pub(super) owner: Option<&'a str>,
    /// Mode of the files, in octal.
    pub(super) mode: Option<&'a str>,
}

/// A finished mount, and how it is undone after the command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mounted {
    /// The topmost path that was created, with a `/` at its end if only the contents of the directory were.
    pub(super) path: String,
    /// The directory with what was at the path before.
    pub(super) aside: Option<String>,
}

/// Puts files to their target.
pub(super) fn mount(mount: &Mount<'_>, accounts: &Accounts) -> Result<Mounted> {
    let target = resolve::canonical(&Path::new("/").join(mount.target))?;
    let mounted = match fs::symlink_metadata(&target) {
        Ok(_) if is_empty_directory(&target) => Mounted { path: format!("{}/", text(&target)?), aside: None },
        Ok(_) => Mounted { path: text(&target)?, aside: Some(set_aside(&target, mount.archive)?) },
        Err(_) => Mounted { path: text(&topmost_missing(&target))?, aside: None },
    };
    match mount.source {
        Some(source) => {
            let copy = Copy {
                source,
                destination: &text(&target)?,
                workdir: None,
                user: "root",
                owner: mount.owner,
                mode: mount.mode,
            };
            copy::run(mount.archive, &copy, accounts)?;
        }
        None => place_file(mount, &target, accounts)?,
    }
    Ok(mounted)
}

/// Moves what is at `target` into a directory of its own, which is returned.
fn set_aside(target: &Path, archive: &Path) -> Result<String> {
    let directory = copy::private_directory(archive)?;
    fs::rename(target, directory.join(ASIDE)).map_err(|error| {
        let _ = fs::remove_dir(&directory);
        StepError::invalid(format!(
            "the target `{}` of a mount exists, and cannot be set aside ({error}): choose a path that does not exist, an empty directory, \
             or one that a step of this template has created",
            target.display()
        ))
    })?;
    text(&directory)
}

/// Removes what [`mount`] has put somewhere, and puts back what was there. What the command has removed is no error.
pub(super) fn unmount(mounted: &Mounted) -> Result<()> {
    let path = mounted.path.as_str();
    let removed = match path.strip_suffix('/') {
        Some(directory) => fs::read_dir(directory)
            .and_then(|mut entries| entries.try_for_each(|entry| remove(&entry?.path()))),
        None => remove(Path::new(path)),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(StepError::file("remove", path, error));
        }
        _ => {}
    }
    let Some(aside) = mounted.aside.as_deref().map(Path::new) else { return Ok(()) };
    fs::rename(aside.join(ASIDE), path)
        .and_then(|()| fs::remove_dir(aside))
        .map_err(|error| StepError::file("put back", path, error))
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

fn place_file(mount: &Mount<'_>, target: &Path, accounts: &Accounts) -> Result<()> {
    let failed = |action: &str, error| StepError::file(action, target.display(), error);
    let root = owner::account(accounts, "root")?;
    let owner = owner::parse(mount.owner, &root, accounts)?;
    let mode = owner::mode(mount.mode)?.unwrap_or(0o400);
    if let Some(parent) = target.parent() {
        directories::create_all(parent, Owner::from(&root))
            .map_err(|error| failed("create the directory of", error))?;
    }
    // Across file systems, as most secrets are below `/run`.
    let copied = fs::copy(mount.archive, target);
    fs::remove_file(mount.archive)
        .map_err(|error| StepError::file("remove", mount.archive.display(), error))?;
    copied.map_err(|error| failed("write", error))?;
    std::os::unix::fs::chown(target, Some(owner.uid), Some(owner.gid))
        .map_err(|error| failed("change the owner of", error))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(target, mode).map_err(|error| failed("change the mode of", error))
}

fn is_empty_directory(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn topmost_missing(path: &Path) -> PathBuf {
    let missing = path.ancestors().take_while(|path| fs::symlink_metadata(path).is_err());
    missing.last().unwrap_or(path).to_owned()
}

fn text(path: &Path) -> Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| StepError::invalid(format!("the path `{}` is not UTF-8", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_somewhere_is_removed_with_the_directories_above_it() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let accounts = Accounts::load().unwrap();
        let own = accounts.user_name(rustix::process::geteuid().as_raw());
        let put = |target: &str, accounts: &Accounts| {
            fs::write(base.join("file"), "secret").unwrap();
            let (archive, target) = (base.join("file"), base.join(target));
            let target = target.to_str().unwrap();
            mount(
                &Mount { archive: &archive, source: None, target, owner: Some(&own), mode: Some("0440") },
                accounts,
            )
        };
        let undo = put("a/b/c", &accounts).unwrap();
        assert_eq!(fs::read_to_string(base.join("a/b/c")).unwrap(), "secret");
        assert_eq!(undo, Mounted { path: base.join("a").to_str().unwrap().to_owned(), aside: None });
        unmount(&undo).unwrap();
        assert!(!base.join("a").exists() && !base.join("file").exists());
        unmount(&undo).unwrap();
        fs::create_dir(base.join("kept")).unwrap();
        fs::write(base.join("kept/x"), "own").unwrap();
        for (target, shown) in [("kept", "kept"), ("kept/x", "kept/x")] {
            let undo = put(target, &accounts).unwrap();
            assert_eq!(fs::read_to_string(base.join(shown)).unwrap(), "secret");
            unmount(&undo).unwrap();
            assert_eq!(fs::read_to_string(base.join("kept/x")).unwrap(), "own");
        }
        assert_eq!(fs::read_dir(&base).unwrap().count(), 1, "nothing else is left");
        assert!(put("/proc/sys", &accounts).unwrap_err().to_string().contains("cannot be set aside"));
        fs::remove_file(base.join("kept/x")).unwrap();
        let emptied = Mounted { path: format!("{}/", base.join("kept").display()), aside: None };
        unmount(&emptied).unwrap();
        assert!(is_empty_directory(&base.join("kept")));
    }
}
