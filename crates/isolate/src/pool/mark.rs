//! The mark of a pool: a file in the pool and one beside it hold the same name. Without a mark, a disk that is not
//! mounted looks like a pool in which every sandbox has died.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::at;
use crate::{Error, Result};

/// Result of comparing the two files of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// No pool has been used with this data directory.
    New,
    /// The pool is the one that was used before.
    Same,
    /// The pool is another one, or missing.
    Other,
}

impl Identity {
    /// Compares the files below `data_dir` and `root`.
    pub(super) fn of(data_dir: &Path, root: &Path) -> Result<Self> {
        Ok(match (read(&beside(data_dir))?, read(&inside(root))?) {
            (None, _) => Self::New,
            (ours, theirs) if ours == theirs => Self::Same,
            _ => Self::Other,
        })
    }
}

/// Error for a pool that is not the one that was used before.
pub(super) fn other(data_dir: &Path, root: &Path) -> Error {
    Error::OtherPool { path: root.to_owned(), mark: beside(data_dir) }
}

/// Marks a pool that is used for the first time; refuses a pool that is not the one used before.
pub(super) fn ensure(data_dir: &Path, root: &Path) -> Result<()> {
    let (beside, inside) = (beside(data_dir), inside(root));
    match Identity::of(data_dir, root)? {
        Identity::Same => Ok(()),
        Identity::Other => Err(other(data_dir, root)),
        Identity::New => {
            let name = match read(&inside)? {
                Some(name) => name,
                None => {
                    let random = Path::new("/proc/sys/kernel/random/uuid");
                    let name = std::fs::read_to_string(random).map_err(at("read", random))?;
                    write(&inside, name.trim()).map_err(at("write", &inside))?;
                    name.trim().to_owned()
                }
            };
            // Last: the pool that is named here must exist.
            write(&beside, &name).map_err(at("write", &beside))
        }
    }
}

fn beside(data_dir: &Path) -> PathBuf {
    data_dir.join("pool.id")
}

fn inside(root: &Path) -> PathBuf {
    root.join("id")
}

fn read(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(name) => Ok(Some(name.trim().to_owned()).filter(|name| !name.is_empty())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at("read", path)(error)),
    }
}

/// Writes a file atomically; it is on disk when this returns.
fn write(path: &Path, name: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    writeln!(file, "{name}")?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_is_not_there_is_not_taken_for_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("pool");
        std::fs::create_dir(&root).unwrap();
        assert_eq!(Identity::of(dir.path(), &root).unwrap(), Identity::New);
        ensure(dir.path(), &root).unwrap();
        ensure(dir.path(), &root).unwrap();
        assert_eq!(Identity::of(dir.path(), &root).unwrap(), Identity::Same);
        std::fs::rename(&root, dir.path().join("away")).unwrap();
        std::fs::create_dir(&root).unwrap();
        assert!(matches!(ensure(dir.path(), &root), Err(Error::OtherPool { .. })));
        std::fs::remove_dir(&root).unwrap();
        std::fs::rename(dir.path().join("away"), &root).unwrap();
        ensure(dir.path(), &root).unwrap();
        // A data directory without the mark: that of an earlier version, or one that died in between.
        std::fs::remove_file(dir.path().join("pool.id")).unwrap();
        ensure(dir.path(), &root).unwrap();
        assert_eq!(Identity::of(dir.path(), &root).unwrap(), Identity::Same);
    }
}
