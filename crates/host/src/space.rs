//! How much of the disk files take that nothing else shares.
//!
//! Snapshots and layers are copies of one another: the same file has the same inode and times in all of them, and its data is on the
//! disk once.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file with its data, wherever copies of it are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Data {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

/// Files that have been counted.
#[derive(Debug, Default)]
pub(crate) struct Counted(HashSet<Data>);

impl Counted {
    /// Counts the files below `directory`, and returns the bytes of those that were not counted before.
    pub(crate) fn add(&mut self, directory: &Path) -> u64 {
        let mut bytes = 0;
        let mut left = vec![directory.to_owned()];
        while let Some(directory) = left.pop() {
            let Ok(entries) = std::fs::read_dir(&directory) else { continue };
            for entry in entries.flatten() {
                let Ok(metadata) = entry.metadata() else { continue };
                if metadata.is_dir() {
                    left.push(entry.path());
                    continue;
                }
                let data = Data {
                    inode: metadata.ino(),
                    bytes: metadata.blocks() * 512,
                    changed: (metadata.ctime(), metadata.ctime_nsec()),
                };
                if self.0.insert(data) {
                    bytes += data.bytes;
                }
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_counts_once() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (directory.path().join("one"), directory.path().join("two/below"));
        std::fs::create_dir(&one).unwrap();
        std::fs::create_dir_all(&two).unwrap();
        std::fs::write(one.join("a"), [1; 50_000]).unwrap();
        std::fs::hard_link(one.join("a"), two.join("same")).unwrap();
        std::fs::write(two.join("b"), [1; 20_000]).unwrap();
        std::os::unix::fs::symlink("/", two.join("out")).unwrap();
        let mut counted = Counted::default();
        let first = counted.add(&one);
        assert!((50_000..70_000).contains(&first), "{first}");
        let second = counted.add(&directory.path().join("two"));
        assert!((20_000..40_000).contains(&second), "{second}");
        assert_eq!(counted.add(directory.path()), 0);
        assert_eq!(counted.add(&directory.path().join("missing")), 0);
    }
}
