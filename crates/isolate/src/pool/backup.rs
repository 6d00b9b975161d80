//! Copies of a pool for backups, and pools that are filled from backups.
//!
//! Subvolumes are copied as for snapshots: at once, whatever their size, and sharing their data. They are in the directory `backup` of the
//! pool until the backup is complete. What is left there by a backup that was killed is removed by the next one and by the next server.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::numbers::{next_number, remove_first};
use super::{FileSystem, Pool, at, delete_subvolume, file_system_of, image, open};
use crate::{Error, Result, sys};

const DIRECTORY: &str = "backup";
const LOCK: &str = "lock";
/// Number of the first file that is restored. The layers of the built-in templates are built afterwards, and count from where they always do.
const FIRST_RESTORED: u64 = 1 << 19;

/// A directory of the pool with one entry for each object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shelf {
    /// Files of sandboxes.
    Sandboxes,
    /// Files of snapshots.
    Snapshots,
    /// Directories that outlive sandboxes.
    Volumes,
    /// Layers of templates. Those that a sandbox has written are subvolumes.
    Layers,
    /// Memory of parked sandboxes.
    Parked,
    /// Memory of snapshots.
    SnapshotMemory,
}

impl Shelf {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Layers, Self::Snapshots, Self::Volumes, Self::Sandboxes, Self::Parked, Self::SnapshotMemory];

    /// Name of the directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sandboxes => "sandboxes",
            Self::Snapshots => "snapshots",
            Self::Volumes => "volumes",
            Self::Layers => "layers",
            Self::Parked => "parked",
            Self::SnapshotMemory => "snapshot-memory",
        }
    }

    /// Whether an object that is complete never changes.
    pub fn is_read_only(self) -> bool {
        matches!(self, Self::Snapshots | Self::Layers)
    }
}

/// Copies of objects of a pool. They are deleted with it.
#[derive(Debug)]
pub struct Copies {
    pool: Pool,
    data_dir: PathBuf,
    /// Whether this process has mounted the pool.
    has_mounted: bool,
    _lock: File,
}

impl Copies {
    /// Opens the pool of `data_dir`, which a server may be using.
    ///
    /// # Errors
    /// When the pool cannot be opened, or another backup is in progress.
    pub fn open(data_dir: &Path) -> Result<Self> {
        let root = data_dir.join("pool");
        let was_mounted = root.is_dir() && file_system_of(&root)? != FileSystem::Plain;
        let pool = Pool::open(data_dir, None)?;
        let has_mounted = !was_mounted && image::exists(data_dir);
        let directory = pool.root.join(DIRECTORY);
        create(&directory)?;
        let path = directory.join(LOCK);
        let lock = File::create(&path).map_err(at("create", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Kernel {
                    action: format!("begin a backup of `{}`: another one is in progress", data_dir.display()),
                    source: io::ErrorKind::WouldBlock.into(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(at("lock", &path)(error)),
        }
        let copies = Self { pool, data_dir: data_dir.to_owned(), has_mounted, _lock: lock };
        copies.clear()?;
        for shelf in Shelf::ALL {
            create(&directory.join(shelf.name()))?;
        }
        Ok(copies)
    }

    /// Copies an object; false if there is none. On a file system without snapshots it is left where it is.
    ///
    /// # Errors
    /// When the object cannot be copied.
    pub fn take(&self, shelf: Shelf, name: &str) -> Result<bool> {
        let path = self.pool.root.join(shelf.name()).join(name);
        let source = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            source => source.map_err(at("open", &path))?,
        };
        match (shelf, self.pool.file_system) {
            (_, FileSystem::Plain) => Ok(true),
            (Shelf::Parked | Shelf::SnapshotMemory, _) => self.link(shelf, name),
            (_, FileSystem::Btrfs(_)) if !is_subvolume(&source) => Ok(true),
            (_, FileSystem::Btrfs(_)) => {
                let directory = self.shelf(shelf);
                let parent = open(&directory)?;
                match sys::copy_subvolume(source.as_fd(), parent.as_fd(), name, true) {
                    // It was being deleted.
                    Err(error) if !path.exists() => {
                        tracing::debug!(%error, name, "what was to be copied is gone");
                        Ok(false)
                    }
                    copied => copied.map(|()| true).map_err(at("copy", &path)),
                }
            }
        }
    }

    /// Opens the copy of an object, or the object itself if it was not copied.
    ///
    /// # Errors
    /// When there is neither.
    pub fn open_copy(&self, shelf: Shelf, name: &str) -> Result<File> {
        let copy = self.shelf(shelf).join(name);
        if copy.is_dir() { open(&copy) } else { open(&self.pool.root.join(shelf.name()).join(name)) }
    }

    /// Whether the object is one subvolume, and not a directory like others.
    pub fn is_subvolume(&self, shelf: Shelf, name: &str) -> bool {
        matches!(self.pool.file_system, FileSystem::Btrfs(_))
            && File::open(self.pool.root.join(shelf.name()).join(name)).is_ok_and(|file| is_subvolume(&file))
    }

    /// Whether copies are of one moment. They are not on a file system without snapshots.
    pub fn are_of_one_moment(&self) -> bool {
        self.pool.file_system != FileSystem::Plain
    }

    /// Space that an object has below its limit, bytes, if it has a limit.
    pub fn room(&self, shelf: Shelf, name: &str) -> Option<u64> {
        let FileSystem::Btrfs(quota) = self.pool.file_system else { return None };
        let file = File::open(self.pool.root.join(shelf.name()).join(name)).ok()?;
        let limit = quota.limit_of(file.as_fd()).ok()??;
        Some(limit.saturating_sub(quota.used(file.as_fd()).ok()?))
    }

    fn shelf(&self, shelf: Shelf) -> PathBuf {
        self.pool.root.join(DIRECTORY).join(shelf.name())
    }

    /// Gives the files of a directory a second name each. They never change.
    fn link(&self, shelf: Shelf, name: &str) -> Result<bool> {
        let (from, to) = (self.pool.root.join(shelf.name()).join(name), self.shelf(shelf).join(name));
        create(&to)?;
        let entries = match std::fs::read_dir(&from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            entries => entries.map_err(at("read", &from))?,
        };
        for entry in entries {
            let entry = entry.map_err(at("read", &from))?;
            match std::fs::hard_link(entry.path(), to.join(entry.file_name())) {
                // The sandbox is being resumed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    std::fs::remove_dir_all(&to).map_err(at("delete", &to))?;
                    return Ok(false);
                }
                linked => linked.map_err(at("link", &entry.path()))?,
            }
        }
        Ok(true)
    }

    fn clear(&self) -> Result<()> {
        clear(&self.pool.root, self.pool.file_system)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        if let Err(error) = self.clear() {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "failed to delete the copies of a backup; the next start of the server deletes them"
            );
        }
        let _ = std::fs::remove_file(self.pool.root.join(DIRECTORY).join(LOCK));
        let _ = std::fs::remove_dir(self.pool.root.join(DIRECTORY));
        if self.has_mounted
            && let Err(error) = Pool::close(&self.data_dir)
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "failed to unmount the pool");
        }
    }
}

/// Deletes what a backup that was killed has left, unless one is in progress.
pub(super) fn remove_left(root: &Path, file_system: FileSystem) {
    let Ok(lock) = File::open(root.join(DIRECTORY).join(LOCK)) else { return };
    if lock.try_lock().is_err() {
        return;
    }
    if let Err(error) = clear(root, file_system) {
        tracing::warn!(error = &error as &dyn std::error::Error, "failed to delete what a backup has left");
    }
}

/// Directories below the pool whose entries may be subvolumes.
pub(super) fn shelves(root: &Path) -> Vec<PathBuf> {
    Shelf::ALL.iter().map(|shelf| root.join(DIRECTORY).join(shelf.name())).collect()
}

fn clear(root: &Path, file_system: FileSystem) -> Result<()> {
    for shelf in shelves(root) {
        for entry in std::fs::read_dir(&shelf).into_iter().flatten().flatten() {
            let path = entry.path();
            match (file_system, entry.file_name().to_str()) {
                (FileSystem::Btrfs(quota), Some(name))
                    if open(&path).is_ok_and(|file| is_subvolume(&file)) =>
                {
                    delete_subvolume(&shelf, name, quota)?;
                }
                _ => std::fs::remove_dir_all(&path).map_err(at("delete", &path))?,
            }
        }
        match std::fs::remove_dir(&shelf) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at("delete", &shelf)(error)),
            _ => {}
        }
    }
    Ok(())
}

/// Whether an open directory is the top of a subvolume, which has this number in each of them.
fn is_subvolume(directory: &File) -> bool {
    const FIRST_FREE_OBJECTID: u64 = 256;
    rustix::fs::fstat(directory).is_ok_and(|stat| stat.st_ino == FIRST_FREE_OBJECTID)
}

fn create(directory: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(at("create", directory))
}

/// The pool of a new data directory, which is being filled from a backup.
#[derive(Debug)]
pub struct Refill {
    pool: Pool,
    data_dir: PathBuf,
    /// Number above those of all files so far.
    next: AtomicU64,
}

/// Properties that a restored object is to have.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kept {
    /// Space below its limit, bytes, if it has a limit.
    pub room: Option<u64>,
    /// Account that is charged for it.
    pub account: Option<u64>,
}

impl Refill {
    /// Creates the pool of `data_dir`. `size_gib` is the size of its image, if it needs one.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(data_dir: &Path, size_gib: Option<u64>) -> Result<Self> {
        let pool = Pool::open(data_dir, size_gib)?;
        Ok(Self { pool, data_dir: data_dir.to_owned(), next: AtomicU64::new(FIRST_RESTORED) })
    }

    /// Creates the subvolume of an object, empty and writable.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn begin(&self, shelf: Shelf, name: &str) -> io::Result<()> {
        let directory = self.pool.root.join(shelf.name());
        match self.pool.file_system {
            FileSystem::Btrfs(_) => {
                let next = self.next.load(Ordering::Relaxed);
                self.pool.blank.copy(&self.pool.layers(), next, &File::open(directory)?, name)
            }
            FileSystem::Plain => std::fs::create_dir(directory.join(name)),
        }
    }

    /// Writes everything to disk. Limits are computed from what is there then.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn sync(&self) -> Result<()> {
        let root = &self.pool.root;
        rustix::fs::syncfs(open(root)?).map_err(|error| at("sync", root)(error.into()))
    }

    /// Completes an object whose files are there: its limit, its account, and whether it may be changed.
    ///
    /// # Errors
    /// When one of these cannot be set.
    pub fn finish(&self, shelf: Shelf, name: &str, kept: Kept) -> Result<()> {
        let FileSystem::Btrfs(quota) = self.pool.file_system else { return Ok(()) };
        let directory = self.pool.root.join(shelf.name());
        let (path, parent) = (directory.join(name), open(&directory)?);
        let file = open(&path)?;
        remove_first(&path).map_err(at("clear", &path))?;
        self.next.fetch_max(next_number(&path).map_err(at("inspect", &path))?, Ordering::Relaxed);
        if let Some(account) = kept.account {
            quota.charge(parent.as_fd(), file.as_fd(), account).map_err(at("charge", &path))?;
        }
        if let Some(room) = kept.room {
            let used = quota.used(file.as_fd()).unwrap_or_default();
            quota
                .limit(parent.as_fd(), file.as_fd(), used.saturating_add(room))
                .map_err(at("limit", &path))?;
        }
        if shelf.is_read_only() {
            let writable = format!(".restored-{name}");
            let aside = directory.join(&writable);
            std::fs::rename(&path, &aside).map_err(at("rename", &path))?;
            sys::copy_subvolume(file.as_fd(), parent.as_fd(), name, true).map_err(at("create", &path))?;
            sys::delete_subvolume(parent.as_fd(), &writable).map_err(at("delete", &aside))?;
        }
        Ok(())
    }

    /// Deletes the pool of `data_dir` that a restore has begun to fill.
    ///
    /// # Errors
    /// When something cannot be deleted.
    pub fn erase(data_dir: &Path) -> Result<()> {
        Pool::erase(data_dir)
    }

    /// Unmounts the pool if it is an image: the server mounts it.
    ///
    /// # Errors
    /// When it cannot be unmounted.
    pub fn close(self) -> Result<()> {
        Pool::close(&self.data_dir)
    }
}
