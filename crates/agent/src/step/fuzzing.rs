//! Properties of archives; see [`crate::fuzzing`].

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::tree::{Attributes, Tree};
use super::{archive as reader, merge};
use crate::filesystem::directories::Owner;

/// Content of a file that no archive may reach.
const CANARY: &str = "nobody writes here";

/// Checks that whatever an archive has is unpacked below the directory that is meant for it, with owner and mode as asked for, and
/// can be moved from there.
pub fn archive(input: &[u8]) {
    let scratch = Scratch::new();
    let (tree, moved) = (scratch.0.join("tree"), scratch.0.join("moved"));
    let attributes = Attributes {
        owner: Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() },
        mode: Some(0o700),
    };
    let Ok(mut unpacked) = Tree::new(&tree, attributes) else { return };
    let outcome = reader::unpack(input, &mut unpacked);
    drop(unpacked);
    scratch.check();
    check_modes(&tree);
    if outcome.is_ok() {
        let (from, to) = (merge::open(&tree), merge::open(&moved));
        let (Ok(from), Ok(to)) = (from, to) else { return };
        assert!(merge::contents(&from, &to, "/").is_ok(), "what was unpacked cannot be moved");
        let left = fs::read_dir(&tree).map(|entries| entries.count());
        assert!(left.is_ok_and(|left| left == 0), "something was not moved");
        scratch.check();
        check_modes(&moved);
    }
}

fn check_modes(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(found) = entry.path().symlink_metadata() else { continue };
        assert!(
            found.is_symlink() || found.mode() & 0o7777 == 0o700 || found.is_file(),
            "{:?}",
            entry.path()
        );
        if found.is_dir() {
            check_modes(&entry.path());
        }
    }
}

/// A directory for one run, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("sandcove-archive-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        let made = fs::create_dir_all(directory.join("tree"))
            .and_then(|()| fs::create_dir(directory.join("moved")))
            .and_then(|()| fs::write(directory.join("canary"), CANARY))
            .and_then(|()| fs::set_permissions(directory.join("canary"), fs::Permissions::from_mode(0o640)));
        assert!(made.is_ok(), "{made:?}");
        Self(directory)
    }

    /// Checks that nothing but the two trees has changed.
    fn check(&self) {
        let mut names: Vec<_> =
            fs::read_dir(&self.0).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, ["canary", "moved", "tree"]);
        let canary = self.0.join("canary");
        assert!(fs::read_to_string(&canary).is_ok_and(|text| text == CANARY));
        let found = fs::symlink_metadata(&canary);
        assert!(found.is_ok_and(|found| found.mode() & 0o7777 == 0o640 && found.nlink() == 1));
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let removed = fs::remove_dir_all(&self.0);
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}
