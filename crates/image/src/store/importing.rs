//! Layers that are imported while the server runs. Several imports and a build may go on at once, so each import has a directory
//! that it locks, and the lock of the store is not taken. A lease keeps an imported layer until a template names it.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::LayerStore;
use super::held::Held;
use crate::{Error, LayerId, Result};

const PREFIX: &str = ".importing-";
/// Time between two attempts to lock a directory that another import has locked.
const RETRY: Duration = Duration::from_millis(100);

/// Keeps a layer from being removed by [`LayerStore::collect`] for as long as it exists.
#[derive(Debug, Clone)]
pub struct Lease {
    _directory: Arc<Held>,
}

/// The result of waiting for a turn to import a layer.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The layer exists; nothing has to be imported.
    Exists(Lease),
    /// The layer is missing, and this is the only import of it.
    Import(Importing),
}

/// An unfinished import. Its files are deleted when it is dropped, or by the next lock of the store if the process was killed.
#[derive(Debug)]
pub(crate) struct Importing {
    store: LayerStore,
    directory: PathBuf,
    lock: Option<Held>,
    /// Tree that becomes the layer.
    pub tree: PathBuf,
}

pub(super) fn is_import(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Locks the directory `path` exclusively. `None` if another process or task has locked it, or if it does not exist any more.
pub(super) fn try_own(path: &Path) -> Result<Option<Held>> {
    locked(path, File::try_lock)
}

fn locked(
    path: &Path,
    lock: impl Fn(&File) -> std::result::Result<(), TryLockError>,
) -> Result<Option<Held>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::path("open", path)(error)),
    };
    let held = match Held::take(file, lock) {
        Ok(held) => held,
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(Error::path("lock", path)(error)),
    };
    // The directory may have been removed, and another one created, before the lock was taken.
    let own = held.file().metadata().map_err(Error::path("inspect", path))?;
    let is_same = std::fs::symlink_metadata(path).is_ok_and(|found| found.ino() == own.ino());
    Ok(is_same.then_some(held))
}

impl LayerStore {
    /// Keeps the layer from being removed. `None` if it does not exist or is being removed.
    ///
    /// # Errors
    /// When the directory of the layer cannot be opened or locked.
    pub fn lease(&self, id: &LayerId) -> Result<Option<Lease>> {
        self.lease_named(id.as_str())
    }

    /// Keeps the layer of this name, a plain file name, from being removed, as [`LayerStore::lease`] does.
    ///
    /// # Errors
    /// When the directory of the layer cannot be opened or locked.
    pub fn lease_named(&self, name: &str) -> Result<Option<Lease>> {
        let held = locked(&self.directory.join(name), File::try_lock_shared)?;
        Ok(held.map(|held| Lease { _directory: Arc::new(held) }))
    }

    /// Creates an empty file without a name on the disk of the layers, for what is downloaded or decompressed on the way.
    pub(crate) fn unnamed_file(&self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        match rustix::fs::open(&self.directory, flags | OFlags::TMPFILE, mode) {
            // A file system that has no such files.
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {}
            opened => return Ok(opened?.into()),
        }
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join(format!(".scratch-{}-{number}", std::process::id()));
        let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
        std::fs::remove_file(&path)?;
        Ok(file.into())
    }

    /// Waits until the layer exists or no other import of it is in flight.
    pub(crate) async fn turn(&self, id: &LayerId) -> Result<Turn> {
        loop {
            if let Some(lease) = self.lease(id)? {
                return Ok(Turn::Exists(lease));
            }
            if !self.has(id)
                && let Some(importing) = self.begin_import(id)?
            {
                return Ok(Turn::Import(importing));
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    fn begin_import(&self, id: &LayerId) -> Result<Option<Importing>> {
        let directory = self.directory.join(format!("{PREFIX}{id}"));
        match std::fs::create_dir(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::path("create", &directory)(error));
            }
            _ => {}
        }
        let Some(lock) = try_own(&directory)? else { return Ok(None) };
        // Another import may have published between the check and the lock.
        if self.has(id) {
            return Ok(None);
        }
        let tree = directory.join("tree");
        match std::fs::remove_dir_all(&tree) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::path("remove", &tree)(error));
            }
            _ => std::fs::create_dir(&tree).map_err(Error::path("create", &tree))?,
        }
        std::fs::set_permissions(&tree, PermissionsExt::from_mode(0o755))
            .map_err(Error::path("set permissions of", &tree))?;
        Ok(Some(Importing { store: self.clone(), directory, lock: Some(lock), tree }))
    }

    /// Deletes the directories of imports whose process was killed.
    pub(super) fn sweep_imports(&self) -> Result<()> {
        for name in self.names()?.iter().filter(|name| is_import(name)) {
            let path = self.directory.join(name);
            if let Some(_lock) = try_own(&path)? {
                std::fs::remove_dir_all(&path).map_err(Error::path("remove", &path))?;
            }
        }
        Ok(())
    }
}

impl Importing {
    /// Makes the finished layer visible, once its files are on disk.
    pub(crate) fn publish(self, id: &LayerId) -> Result<Lease> {
        let tree = File::open(&self.tree).map_err(Error::path("open", &self.tree))?;
        rustix::fs::syncfs(&tree).map_err(|error| Error::path("sync", &self.tree)(error.into()))?;
        // The lease is taken before the layer is visible, so that nothing removes it in between.
        let held = match Held::take(tree, File::try_lock_shared) {
            Ok(held) => held,
            Err(TryLockError::WouldBlock) => return Err(Error::Busy { path: self.tree.clone() }),
            Err(TryLockError::Error(error)) => return Err(Error::path("lock", &self.tree)(error)),
        };
        let path = self.store.path(id);
        std::fs::rename(&self.tree, &path).map_err(Error::path("publish", &path))?;
        self.store.sync()?;
        Ok(Lease { _directory: Arc::new(held) })
    }
}

impl Drop for Importing {
    fn drop(&mut self) {
        let (directory, lock) = (std::mem::take(&mut self.directory), self.lock.take());
        // A large tree takes seconds to delete, and the drop may be on a thread that serves requests. If no thread can be started,
        // the next lock of the store deletes the directory.
        let _ = std::thread::Builder::new().name("remove-import".to_owned()).spawn(move || {
            if let Err(error) = std::fs::remove_dir_all(&directory) {
                tracing::warn!(path = %directory.display(), %error, "failed to remove an unfinished import");
            }
            drop(lock);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn id() -> LayerId {
        LayerId::of_image(&[7; 32])
    }

    fn store() -> (tempfile::TempDir, LayerStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = LayerStore::open(dir.path()).unwrap();
        (dir, store)
    }

    async fn import(store: &LayerStore) -> Importing {
        match store.turn(&id()).await.unwrap() {
            Turn::Import(importing) => importing,
            Turn::Exists(_) => panic!("the layer exists"),
        }
    }

    #[tokio::test]
    async fn a_second_import_waits_for_the_first() {
        let (_dir, store) = store();
        let first = import(&store).await;
        std::fs::write(first.tree.join("file"), "x").unwrap();
        let (other, waiting) = (store.clone(), tokio::time::Duration::from_millis(150));
        let second = tokio::spawn(async move { other.turn(&id()).await.unwrap() });
        tokio::time::sleep(waiting).await;
        assert!(!second.is_finished() && !store.has(&id()));
        first.publish(&id()).unwrap();
        assert!(matches!(second.await.unwrap(), Turn::Exists(_)));
        assert!(store.path(&id()).join("file").exists());
    }

    #[tokio::test]
    async fn a_leased_layer_is_not_removed() {
        let (_dir, store) = store();
        let lease = import(&store).await.publish(&id()).unwrap();
        assert!(store.collect(&HashSet::new()).unwrap().is_empty());
        let second = store.lease(&id()).unwrap().unwrap();
        drop(lease);
        assert!(store.collect(&HashSet::new()).unwrap().is_empty());
        drop(second);
        assert_eq!(store.collect(&HashSet::new()).unwrap(), [id().to_string()]);
        assert!(store.lease(&id()).unwrap().is_none());
    }

    #[tokio::test]
    async fn only_imports_in_flight_keep_their_files() {
        let (dir, store) = store();
        let importing = import(&store).await;
        let dead = dir.path().join(".importing-oci-dead");
        std::fs::create_dir_all(dead.join("tree")).unwrap();
        drop(store.lock().unwrap());
        assert!(importing.tree.exists() && !dead.exists());
    }
}
