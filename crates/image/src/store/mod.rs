//! The directory of layers. A layer is added atomically, by a rename after its files are on disk, and removed
//! atomically, by a rename before its files are deleted.

mod held;
mod importing;

use std::collections::HashSet;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Error, LayerId, Result};
use held::Held;

pub use importing::Lease;
pub(crate) use importing::{Importing, Turn};

const STAGING_PREFIX: &str = ".building-";
const REMOVING_PREFIX: &str = ".removing-";

/// The layer directory of one pool.
#[derive(Debug, Clone)]
pub struct LayerStore {
    directory: PathBuf,
}

impl LayerStore {
    /// Start of the names of layers that sandboxes have written. They are copies of snapshots, which the storage pool creates
    /// and deletes.
    pub const WRITTEN_PREFIX: &str = "t-";
    /// Name of the directory, in a data directory, of layers that were built before there was a storage pool.
    pub const AHEAD: &str = "layers-ahead";

    /// Opens `directory`; creates it when it is missing. Only root may enter it: the trees hold set-user-id programs and
    /// world-writable directories, which are meant for the inside of a sandbox.
    ///
    /// # Errors
    /// When the directory cannot be created or closed to other users.
    pub fn open(directory: &Path) -> Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(Error::path("create", directory))?;
        std::fs::set_permissions(directory, PermissionsExt::from_mode(0o700))
            .map_err(Error::path("close to other users", directory))?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Path of the layer, whether it exists or not.
    pub fn path(&self, id: &LayerId) -> PathBuf {
        self.directory.join(id.as_str())
    }

    /// Whether the layer is complete.
    pub fn has(&self, id: &LayerId) -> bool {
        self.path(id).is_dir()
    }

    /// Locks the store for writing, and deletes the leftovers of killed builds.
    ///
    /// # Errors
    /// [`Error::Busy`] when another process is building here.
    pub(crate) fn lock(&self) -> Result<StoreLock> {
        let path = self.directory.join(".lock");
        let file = File::create(&path).map_err(Error::path("create", &path))?;
        let held = match Held::take(file, File::try_lock) {
            Ok(held) => held,
            Err(TryLockError::WouldBlock) => return Err(Error::Busy { path }),
            Err(TryLockError::Error(error)) => return Err(Error::path("lock", &path)(error)),
        };
        for name in self.names()?.iter().filter(|name| is_leftover(name)) {
            let path = self.directory.join(name);
            remove_leftover(&path).map_err(Error::path("remove", &path))?;
        }
        self.sweep_imports()?;
        Ok(StoreLock { _held: held })
    }

    /// Removes the layers that are neither in `used` nor leased, and the leftovers of killed builds, imports and removals.
    /// Returns the names of the removed layers. Takes no lock when there is nothing to remove. Layers whose
    /// names start with [`LayerStore::WRITTEN_PREFIX`] are not touched.
    ///
    /// # Errors
    /// [`Error::Busy`] when another process is building here; another error when something cannot be removed.
    pub fn collect(&self, used: &HashSet<String>) -> Result<Vec<String>> {
        let is_unused = |name: &String| {
            !name.starts_with('.') && !name.starts_with(Self::WRITTEN_PREFIX) && !used.contains(name)
        };
        let names = self.names()?;
        if !names.iter().any(|name| is_unused(name) || is_leftover(name) || importing::is_import(name)) {
            return Ok(Vec::new());
        }
        let _lock = self.lock()?;
        let mut removed = Vec::new();
        for name in names.into_iter().filter(is_unused) {
            if self.remove_unleased(&name)? {
                removed.push(name);
            }
        }
        Ok(removed)
    }

    /// Removes the layer of this name, a plain file name, unless it is leased. A missing one is no error. Others are not touched, not even
    /// those that appear meanwhile, and neither are layers whose names start with [`LayerStore::WRITTEN_PREFIX`].
    ///
    /// # Errors
    /// [`Error::Busy`] when another process is building here; another error when the layer cannot be removed.
    pub fn remove(&self, name: &str) -> Result<()> {
        let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
        if !is_plain || name.starts_with(Self::WRITTEN_PREFIX) || !self.directory.join(name).is_dir() {
            return Ok(());
        }
        let _lock = self.lock()?;
        self.remove_unleased(name).map(|_| ())
    }

    /// Removes a layer of a locked store. False if it is leased or missing.
    fn remove_unleased(&self, name: &str) -> Result<bool> {
        let Some(_exclusive) = importing::try_own(&self.directory.join(name))? else { return Ok(false) };
        // Renamed first: a partly deleted layer must never be taken for a complete one.
        let (path, hidden) =
            (self.directory.join(name), self.directory.join(format!("{REMOVING_PREFIX}{name}")));
        std::fs::rename(&path, &hidden).map_err(Error::path("remove", &path))?;
        self.sync()?;
        std::fs::remove_dir_all(&hidden).map_err(Error::path("remove", &hidden))?;
        Ok(true)
    }

    /// Free space for layers, MiB.
    pub(crate) fn free_mib(&self) -> Result<u64> {
        let disk = rustix::fs::statvfs(&self.directory)
            .map_err(|error| Error::path("inspect", &self.directory)(error.into()))?;
        Ok((disk.f_bavail * disk.f_frsize) >> 20)
    }

    /// Error for layers that need `needed_mib`, which is not free.
    pub(crate) fn no_room(&self, needed_mib: u64) -> Error {
        let free_mib = self.free_mib().unwrap_or_default();
        Error::NoRoom { needed_mib, free_mib, path: self.directory.clone() }
    }

    fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(Error::path("read", &self.directory))? {
            let name = entry.map_err(Error::path("read", &self.directory))?.file_name();
            // Names of layers are UTF-8; other names are ignored.
            names.extend(name.into_string());
        }
        Ok(names)
    }

    fn sync(&self) -> Result<()> {
        let directory = File::open(&self.directory).map_err(Error::path("open", &self.directory))?;
        directory.sync_all().map_err(Error::path("sync", &self.directory))
    }

    /// Creates the directories of an unfinished layer, which is not visible yet.
    pub(crate) fn stage(&self, id: &LayerId) -> Result<Staging> {
        let directory = self.directory.join(format!("{STAGING_PREFIX}{id}"));
        let staging = Staging { tree: directory.join("tree"), scratch: directory.join("scratch"), directory };
        for path in [&staging.directory, &staging.tree, &staging.scratch] {
            std::fs::create_dir(path).map_err(Error::path("create", path))?;
        }
        std::fs::set_permissions(&staging.tree, PermissionsExt::from_mode(0o755))
            .map_err(Error::path("set permissions of", &staging.tree))?;
        Ok(staging)
    }

    /// Makes a finished layer visible.
    pub(crate) fn publish(&self, staging: Staging, id: &LayerId) -> Result<()> {
        let tree = File::open(&staging.tree).map_err(Error::path("open", &staging.tree))?;
        rustix::fs::syncfs(&tree).map_err(|error| Error::path("sync", &staging.tree)(error.into()))?;
        let path = self.path(id);
        std::fs::rename(&staging.tree, &path).map_err(Error::path("publish", &path))?;
        self.sync()?;
        std::fs::remove_dir_all(&staging.directory).map_err(Error::path("remove", &staging.directory))
    }
}

fn is_leftover(name: &str) -> bool {
    name.starts_with(STAGING_PREFIX) || name.starts_with(REMOVING_PREFIX)
}

/// Removes a directory of an earlier process. The kernel may still be ending a program of that process, which writes into the directory meanwhile.
fn remove_leftover(path: &Path) -> std::io::Result<()> {
    for _ in 0..100 {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                std::thread::sleep(Duration::from_millis(100));
            }
            other => return other,
        }
    }
    std::fs::remove_dir_all(path)
}

/// Lock of the store, held while layers are written.
#[derive(Debug)]
pub(crate) struct StoreLock {
    _held: Held,
}

/// An unfinished layer. The next [`LayerStore::lock`] deletes it unless it has been published.
#[derive(Debug)]
pub(crate) struct Staging {
    directory: PathBuf,
    /// Tree that becomes the layer.
    pub tree: PathBuf,
    /// Directory for the step runner, on the same file system.
    pub scratch: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layer, Origin, Recipe};

    fn layer() -> LayerId {
        let recipe = Recipe { name: "t", origin: Origin::LayerBelow, files: vec![], script: "", size_mib: 0 };
        Layer::new(recipe, None).id
    }

    #[test]
    fn a_layer_is_visible_only_when_published() {
        let dir = tempfile::tempdir().unwrap();
        let store = LayerStore::open(&dir.path().join("layers")).unwrap();
        let _lock = store.lock().unwrap();
        let staging = store.stage(&layer()).unwrap();
        std::fs::write(staging.tree.join("file"), "x").unwrap();
        assert!(!store.has(&layer()));
        store.publish(staging, &layer()).unwrap();
        assert_eq!(std::fs::read(store.path(&layer()).join("file")).unwrap(), b"x");
    }

    #[test]
    fn what_a_killed_build_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let store = LayerStore::open(dir.path()).unwrap();
        let staging = {
            let _lock = store.lock().unwrap();
            store.stage(&layer()).unwrap()
        };
        assert!(staging.tree.exists());
        let _lock = store.lock().unwrap();
        assert!(!staging.tree.exists());
        assert!(!store.has(&layer()));
    }

    #[test]
    fn unused_layers_go_and_used_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let store = LayerStore::open(dir.path()).unwrap();
        for name in ["base-1", "base-2", "t-1", ".removing-base-0/usr", ".building-base-3/tree"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join("file"), "x").unwrap();
        }
        let used = HashSet::from(["base-2".to_owned(), "gone".to_owned()]);
        assert_eq!(store.collect(&used).unwrap(), ["base-1"]);
        let mut left = store.names().unwrap();
        left.sort();
        assert_eq!(left, [".lock", "base-2", "t-1"]);
        assert!(store.collect(&used).unwrap().is_empty());
    }

    #[test]
    fn one_layer_is_removed_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let store = LayerStore::open(&dir.path().join("layers")).unwrap();
        for name in ["oci-1", "oci-2", "t-1", "../outside"] {
            std::fs::create_dir(dir.path().join("layers").join(name)).unwrap();
        }
        for name in ["oci-1", "t-1", "oci-3", ".", "", "../outside"] {
            store.remove(name).unwrap();
        }
        let mut left = store.names().unwrap();
        left.sort();
        assert_eq!(left, [".lock", "oci-2", "t-1"]);
        assert!(dir.path().join("outside").exists());
        let _lock = store.lock().unwrap();
        assert!(matches!(store.remove("oci-2"), Err(Error::Busy { .. })));
    }

    #[test]
    fn nothing_is_removed_while_something_is_built() {
        let dir = tempfile::tempdir().unwrap();
        let store = LayerStore::open(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join("base-1")).unwrap();
        let _lock = store.lock().unwrap();
        assert!(matches!(store.collect(&HashSet::new()), Err(Error::Busy { .. })));
        assert!(dir.path().join("base-1").exists());
    }

    #[test]
    fn two_builds_do_not_mix() {
        let dir = tempfile::tempdir().unwrap();
        let store = LayerStore::open(dir.path()).unwrap();
        let _lock = store.lock().unwrap();
        assert!(matches!(store.lock(), Err(Error::Busy { .. })));
    }

    #[test]
    fn nobody_else_can_enter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layers");
        LayerStore::open(&path).unwrap();
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
