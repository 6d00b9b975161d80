//! Creates directories together with missing parents.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::Path;

use crate::account::Account;

/// The owner of what is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl From<&Account> for Owner {
    fn from(account: &Account) -> Self {
        Self { uid: account.uid, gid: account.gid }
    }
}

/// Makes sure that `path` is a directory. Missing directories are created with mode 0755 and belong to `owner`; existing ones
/// are not changed. Other processes may create the same directories at the same time.
pub fn create_all(path: &Path, owner: Owner) -> io::Result<()> {
    let mut missing = Vec::new();
    for ancestor in path.ancestors().filter(|a| !a.as_os_str().is_empty()) {
        match fs::metadata(ancestor) {
            Ok(found) if found.is_dir() => break,
            Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(ancestor),
            Err(error) => return Err(error),
        }
    }
    for directory in missing.into_iter().rev() {
        match DirBuilder::new().mode(0o755).create(directory) {
            Ok(()) => chown(directory, Some(owner.uid), Some(owner.gid))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn current() -> Owner {
        Owner { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
    }

    #[test]
    fn missing_directories_are_made_and_existing_ones_kept() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("a/b/../c");
        let before = fs::metadata(base.path()).unwrap().mode();
        create_all(&path, current()).unwrap();
        create_all(&path, current()).unwrap();
        assert!(base.path().join("a/c").is_dir());
        assert_eq!(fs::metadata(base.path().join("a")).unwrap().mode() & 0o777, 0o755);
        assert_eq!(fs::metadata(base.path()).unwrap().mode(), before);
    }

    #[test]
    fn a_file_on_the_way_is_an_error() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("file"), "").unwrap();
        assert!(create_all(&base.path().join("file"), current()).is_err());
        assert!(create_all(&base.path().join("file/x"), current()).is_err());
    }

    #[test]
    fn many_may_make_the_same_tree_at_once() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("a/b/c/d/e/f");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| create_all(&path, current()).unwrap());
            }
        });
        assert!(path.is_dir());
    }
}
