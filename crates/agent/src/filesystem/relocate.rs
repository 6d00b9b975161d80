//! Moves and removes entries (contract: envd, section 3.2).

use std::fs;
use std::io;
use std::path::Path;

use super::directories::{self, Owner};
use crate::rpc::{Error, Result};

/// Renames `source` to `destination`, whose missing parents are created for `owner`.
pub(super) fn rename(source: &Path, destination: &Path, owner: Owner) -> Result<()> {
    if let Err(error) = fs::symlink_metadata(source) {
        return Err(missing_or_internal(source, &error));
    }
    if let Some(parent) = destination.parent() {
        directories::create_all(parent, owner).map_err(|e| {
            Error::internal(format!("failed to create directory '{}': {e}", parent.display()))
        })?;
    }
    fs::rename(source, destination).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => missing_or_internal(source, &error),
        _ => Error::internal(format!(
            "failed to move '{}' to '{}': {error}",
            source.display(),
            destination.display()
        )),
    })
}

fn missing_or_internal(source: &Path, error: &io::Error) -> Error {
    let shown = source.display();
    match error.kind() {
        io::ErrorKind::NotFound => Error::not_found(format!("source path '{shown}' does not exist")),
        _ => Error::internal(format!("failed to look at '{shown}': {error}")),
    }
}

/// Removes `path` and everything below it, links but not their targets. A missing entry counts as removed.
pub(super) fn remove(path: &Path) -> Result<()> {
    // Without slashes at the end, by which the kernel would follow a link, and the content of its target would be removed.
    let path = path.components().as_path();
    let removed = fs::symlink_metadata(path)
        .and_then(|found| if found.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) });
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::internal(format!("failed to remove '{}': {error}", path.display())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::rpc::Code;

    fn owner() -> Owner {
        Owner { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
    }

    #[test]
    fn moving_makes_parents_and_replaces_files() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::write(at("a"), "new").unwrap();
        fs::write(at("b"), "old").unwrap();
        rename(&at("a"), &at("b"), owner()).unwrap();
        rename(&at("b"), &at("x/y/c"), owner()).unwrap();
        assert_eq!(fs::read_to_string(at("x/y/c")).unwrap(), "new");
        assert_eq!(rename(&at("gone"), &at("z/d"), owner()).unwrap_err().code, Code::NotFound);
        assert!(!at("z").exists(), "a move that cannot be leaves nothing behind");
    }

    #[test]
    fn moving_onto_a_full_directory_fails() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir_all(at("full/inner")).unwrap();
        fs::create_dir_all(at("other")).unwrap();
        assert_eq!(rename(&at("other"), &at("full"), owner()).unwrap_err().code, Code::Internal);
    }

    #[test]
    fn removing_does_not_follow_links() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir_all(at("kept")).unwrap();
        fs::write(at("kept/file"), "").unwrap();
        fs::create_dir_all(at("tree/deep")).unwrap();
        symlink(at("kept"), at("tree/deep/link")).unwrap();
        symlink(at("kept"), at("link")).unwrap();
        remove(&at("tree")).unwrap();
        remove(&at("link")).unwrap();
        remove(&at("never")).unwrap();
        assert!(at("kept/file").exists());
        assert!(!at("tree").exists());
        assert_eq!(remove(&at("kept/file/x")).unwrap_err().code, Code::Internal);
    }

    #[test]
    fn a_slash_after_a_link_does_not_lead_to_its_target() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir_all(at("kept")).unwrap();
        fs::write(at("kept/file"), "").unwrap();
        for name in ["link/", "link//", "link/."] {
            symlink(at("kept"), at("link")).unwrap();
            remove(&at(name)).unwrap();
            assert!(fs::symlink_metadata(at("link")).is_err(), "{name}");
            assert!(at("kept/file").exists(), "{name}");
        }
        remove(&at("kept/")).unwrap();
        assert!(!at("kept").exists());
    }
}
