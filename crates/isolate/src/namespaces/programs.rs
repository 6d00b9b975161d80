//! Versions of the guest programs. Processes hold on to those that they were started with, over an upgrade of the server and on disk too,
//! so a version is kept for as long as a sandbox has it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::prepare::at;
use crate::Result;

/// Maximum number of versions: the spawner has each of them in memory, 13 MB or so.
const MAX_VERSIONS: usize = 16;

/// The versions that are there. Their names are digests of the programs.
#[derive(Debug)]
pub(super) struct Programs {
    /// Directory of the version that new sandboxes get.
    current: PathBuf,
    /// Directories of earlier versions.
    earlier: Vec<PathBuf>,
}

impl Programs {
    /// Finds the versions beside the directory `current`, and deletes those that are not among the `needed`.
    ///
    /// # Errors
    /// When they cannot be listed. What cannot be deleted is logged.
    pub(super) fn open(current: &Path, needed: &BTreeSet<String>) -> Result<Self> {
        let current = current.to_owned();
        let Some(all) = current.parent() else { return Ok(Self { current, earlier: Vec::new() }) };
        let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in std::fs::read_dir(all).map_err(at("read", all))? {
            let entry = entry.map_err(at("read", all))?;
            let path = entry.path();
            if path == current {
                continue;
            }
            if entry.file_name().to_str().is_some_and(|name| needed.contains(name)) {
                let written = entry.metadata().and_then(|metadata| metadata.modified());
                found.push((written.unwrap_or(SystemTime::UNIX_EPOCH), path));
            } else if let Err(error) = remove(&path) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, path = %path.display(), "failed to delete guest programs that no sandbox has");
            }
        }
        found.sort_by(|one, other| other.cmp(one));
        for (_, path) in found.iter().skip(MAX_VERSIONS - 1) {
            tracing::warn!(path = %path.display(), "too many versions of the guest programs: memory that was stored with this one is not restored");
        }
        let earlier = found.into_iter().take(MAX_VERSIONS - 1).map(|(_, path)| path).collect();
        Ok(Self { current, earlier })
    }

    /// Name of the version that new sandboxes get.
    pub(super) fn current(&self) -> String {
        name(&self.current).unwrap_or_default().to_owned()
    }

    /// Whether the version is there.
    pub(super) fn has(&self, version: &str) -> bool {
        self.directories().any(|directory| name(directory) == Some(version))
    }

    /// The directories of all versions.
    pub(super) fn directories(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.current).chain(&self.earlier).map(PathBuf::as_path)
    }
}

fn name(directory: &Path) -> Option<&str> {
    directory.file_name()?.to_str()
}

/// Deletes a version, or what was left of one.
fn remove(path: &Path) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(names: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for name in names {
            std::fs::create_dir(directory.path().join(name)).unwrap();
            std::fs::write(directory.path().join(name).join("sandcove-agent"), name).unwrap();
        }
        directory
    }

    #[test]
    fn versions_that_sandboxes_have_are_kept_and_others_are_deleted() {
        let all = versions(&["a1", "b2", "c3", "b2.damaged-0"]);
        std::fs::write(all.path().join("file"), "").unwrap();
        let needed = BTreeSet::from(["b2".to_owned(), "gone".to_owned()]);
        let programs = Programs::open(&all.path().join("c3"), &needed).unwrap();
        assert_eq!(programs.current(), "c3");
        assert!(programs.has("b2") && programs.has("c3") && !programs.has("a1") && !programs.has("gone"));
        let mut left: Vec<_> =
            std::fs::read_dir(all.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["b2", "c3"]);
    }

    #[test]
    fn there_are_never_more_than_the_spawner_has_room_for() {
        let names: Vec<String> = (0..20).map(|number| format!("v{number}")).collect();
        let all = versions(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let programs = Programs::open(&all.path().join("v3"), &names.iter().cloned().collect()).unwrap();
        assert_eq!(programs.directories().count(), MAX_VERSIONS);
        assert!(programs.has("v3"));
    }
}
