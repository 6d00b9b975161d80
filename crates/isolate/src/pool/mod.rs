//! The storage pool: template layers, and the files that sandboxes write. On btrfs a sandbox's upper is a subvolume with a
//! limit; on other file systems it is a plain directory without one, which `sandcove doctor` warns about.

pub(crate) mod backup;
mod features;
mod image;
mod layers;
mod mark;
mod numbers;
mod quota;
mod snapshot;
mod volumes;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use sandcove_wire::id::SandboxId;

use crate::sys;
use crate::{Error, Result};
pub use features::PoolQuotas;
use numbers::Blank;
use quota::Quota;

/// Deleted subvolumes between two searches for unused quota groups.
const SEARCH_EVERY: u32 = 128;
/// Attempts to delete a subvolume in which others are created meanwhile.
const MAX_DELETE_ATTEMPTS: u32 = 8;

/// File system of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileSystem {
    /// Uppers are subvolumes.
    Btrfs(Quota),
    /// Uppers are plain directories.
    Plain,
}

/// An open pool.
#[derive(Debug)]
pub(crate) struct Pool {
    root: PathBuf,
    file_system: FileSystem,
    /// Empty subvolume that new uppers are copies of.
    blank: Blank,
    /// Subvolumes deleted so far.
    deleted: AtomicU32,
}

impl Pool {
    /// Opens the pool below `data_dir`; creates and mounts it if necessary. `size_gib` is the size of a new image.
    pub(crate) fn open(data_dir: &Path, size_gib: Option<u64>) -> Result<Self> {
        let root = data_dir.join("pool");
        std::fs::create_dir_all(&root).map_err(at("create", &root))?;
        let mut file_system = file_system_of(&root)?;
        let identity = mark::Identity::of(data_dir, &root)?;
        if file_system == FileSystem::Plain && identity != mark::Identity::Same {
            if identity == mark::Identity::Other && !image::exists(data_dir) {
                return Err(mark::other(data_dir, &root));
            }
            match image::mount(data_dir, &root, size_gib) {
                Ok(()) => file_system = file_system_of(&root)?,
                // Files in the image cannot be seen without it: a server that continued would take every sandbox for lost.
                // An older kernel than the one that created the image may refuse to mount it.
                Err(error) if image::exists(data_dir) && !in_use(&root) => return Err(error),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "no btrfs pool: sandboxes get no disk limit and no snapshots"
                    );
                }
            }
        }
        // An empty directory where a file system should be mounted looks like a pool without sandboxes.
        mark::ensure(data_dir, &root)?;
        let quota = if let FileSystem::Btrfs(quota) = file_system { quota } else { Quota::Off };
        let blank = Blank::of(&root, quota);
        let pool = Self { root, file_system, blank, deleted: AtomicU32::new(0) };
        for directory in [pool.layers(), pool.sandboxes(), pool.snapshots(), pool.volumes()] {
            std::fs::create_dir_all(&directory).map_err(at("create", &directory))?;
            // A process that is entering a sandbox sees this directory and must not read it.
            let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            std::fs::set_permissions(&directory, owner_only).map_err(at("restrict", &directory))?;
        }
        if let FileSystem::Btrfs(quota) = file_system {
            let root = open(&pool.root)?;
            quota.adopt(root.as_fd(), &pool.sandboxes());
            quota.adopt(root.as_fd(), &pool.volumes());
            quota.remove_unused(root.as_fd());
        }
        backup::remove_left(&pool.root, file_system);
        Ok(pool)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Unmounts the pool of `data_dir` if it is an image; the loop device is freed with its last user. A pool that is not
    /// mounted is no error.
    pub(crate) fn close(data_dir: &Path) -> Result<()> {
        if image::exists(data_dir) { image::unmount(&data_dir.join("pool")) } else { Ok(()) }
    }

    /// Deletes everything in the pool of `data_dir`, which no process uses.
    pub(crate) fn erase(data_dir: &Path) -> Result<()> {
        Self::close(data_dir)?;
        let root = data_dir.join("pool");
        let shelves = ["sandboxes", "snapshots", "volumes", "layers"].map(|name| root.join(name));
        for parent in shelves.into_iter().chain(backup::shelves(&root)) {
            for entry in std::fs::read_dir(&parent).into_iter().flatten().flatten() {
                // Only this deletes read-only and nested subvolumes; everything else is deleted with its directory.
                if let Some(name) = entry.file_name().to_str() {
                    let _ = delete_subvolume(&parent, name, Quota::Off);
                }
            }
        }
        Blank::erase(&root);
        // The directory stays, because the host may have mounted a file system of its own here.
        remove_contents(&root).map_err(at("delete", &root))
    }

    /// Directory of the read-only template layers.
    pub(crate) fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// Directory of the sandbox's `upper` and `work`.
    pub(crate) fn sandbox(&self, id: &SandboxId) -> PathBuf {
        self.sandboxes().join(id.as_str())
    }

    /// Creates an empty upper with a limit of `disk_mib`.
    pub(crate) fn create(&self, id: &SandboxId, disk_mib: u64) -> Result<PathBuf> {
        let path = self.sandbox(id);
        match self.file_system {
            FileSystem::Btrfs(quota) => {
                let parent = open(&self.sandboxes())?;
                self.blank
                    .copy(&self.layers(), 0, &parent, id.as_str())
                    .map_err(full_or(at("create", &path)))?;
                quota
                    .limit(parent.as_fd(), open(&path)?.as_fd(), disk_mib << 20)
                    .map_err(at("limit", &path))?;
            }
            FileSystem::Plain => std::fs::create_dir(&path).map_err(full_or(at("create", &path)))?,
        }
        for part in ["upper", "work"] {
            let part = path.join(part);
            std::fs::create_dir(&part).map_err(full_or(at("create", &part)))?;
        }
        numbers::remove_first(&path).map_err(full_or(at("clear", &path)))?;
        Ok(path)
    }

    /// Renames an upper to another id. Existing mounts stay valid.
    pub(crate) fn rename(&self, from: &SandboxId, to: &SandboxId) -> Result<()> {
        let path = self.sandbox(from);
        std::fs::rename(&path, self.sandbox(to)).map_err(at("rename", &path))
    }

    /// Deletes a sandbox's upper; a missing one is no error.
    pub(crate) fn delete(&self, id: &SandboxId) -> Result<()> {
        let path = self.sandbox(id);
        if !path.exists() {
            return Ok(());
        }
        let deleted = match self.file_system {
            FileSystem::Btrfs(quota) => self.delete_from(&self.sandboxes(), id.as_str(), quota),
            FileSystem::Plain => std::fs::remove_dir_all(&path).map_err(at("delete", &path)),
        };
        // A failed start and the end of its processes may delete it at the same time.
        if path.exists() { deleted } else { Ok(()) }
    }

    /// Lists the ids of sandboxes that have an upper.
    pub(crate) fn ids(&self) -> Vec<SandboxId> {
        let entries = std::fs::read_dir(self.sandboxes()).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
    }

    /// Whether the sandbox has an upper.
    pub(crate) fn has(&self, id: &SandboxId) -> bool {
        self.sandbox(id).join("upper").is_dir()
    }

    /// Disk space that a sandbox's upper uses, bytes; 0 without quotas.
    pub(crate) fn used_bytes(&self, id: &SandboxId) -> u64 {
        let FileSystem::Btrfs(quota) = self.file_system else { return 0 };
        open(&self.sandbox(id)).ok().and_then(|fd| quota.used(fd.as_fd()).ok()).unwrap_or_default()
    }

    /// Space that `account` is charged for, bytes; `None` when the file system does not keep accounts.
    pub(crate) fn charged(&self, account: u64) -> Option<u64> {
        let FileSystem::Btrfs(quota) = self.file_system else { return None };
        open(&self.root).ok().and_then(|fd| quota.charged(fd.as_fd(), account))
    }

    /// Deletes the subvolume `name` of `parent` with everything nested in it.
    fn delete_from(&self, parent: &Path, name: &str, quota: Quota) -> Result<()> {
        delete_subvolume(parent, name, quota)?;
        if self.deleted.fetch_add(1, Ordering::Relaxed) % SEARCH_EVERY == SEARCH_EVERY - 1 {
            quota.remove_unused(open(parent)?.as_fd());
        }
        Ok(())
    }
}

/// Deletes the subvolume `name` of `parent` with its quota group, after everything that is nested in it.
fn delete_subvolume(parent: &Path, name: &str, quota: Quota) -> Result<()> {
    let path = parent.join(name);
    let parent = open(parent)?;
    let number = open(&path).and_then(|fd| sys::subvolume_id(fd.as_fd()).map_err(at("inspect", &path)));
    let mut attempts = 1;
    loop {
        match sys::delete_subvolume(parent.as_fd(), name) {
            Ok(()) => break,
            // Nested subvolumes. Sandboxes that mount the volume may create more meanwhile.
            Err(error) if is_not_empty(&error) && attempts < MAX_DELETE_ATTEMPTS => {
                let number = *number.as_ref().map_err(|_| at("delete", &path)(error))?;
                quota
                    .make_room(parent.as_fd(), open(&path)?.as_fd())
                    .map_err(at("raise the limit of", &path))?;
                delete_nested(parent.as_fd(), number, quota).map_err(at("empty", &path))?;
                attempts += 1;
            }
            Err(error) => return Err(at("delete", &path)(error)),
        }
    }
    if let Ok(number) = number {
        quota.forget(parent.as_fd(), number);
    }
    Ok(())
}

fn delete_nested(fd: BorrowedFd<'_>, number: u64, quota: Quota) -> io::Result<()> {
    for nested in quota::all_nested(fd, number)?.into_iter().rev() {
        match sys::delete_subvolume_by_id(fd, nested) {
            Err(error) if error.kind() != io::ErrorKind::NotFound && !is_not_empty(&error) => {
                return Err(error);
            }
            _ => quota.forget(fd, nested),
        }
    }
    Ok(())
}

fn is_not_empty(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::DirectoryNotEmpty
}

fn remove_contents(directory: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Detects the file system at `root` and enables quotas.
fn file_system_of(root: &Path) -> Result<FileSystem> {
    let fd = open(root)?;
    if !sys::is_btrfs(fd.as_fd()).map_err(at("inspect", root))? {
        return Ok(FileSystem::Plain);
    }
    Ok(FileSystem::Btrfs(Quota::enable(fd.as_fd())))
}

/// Whether plain directories have been used as the pool.
fn in_use(root: &Path) -> bool {
    root.join("layers").is_dir()
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(at("open", path))
}

fn at(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Path { action, path: path.clone(), source }
}

fn full_or(otherwise: impl Fn(io::Error) -> Error) -> impl Fn(io::Error) -> Error {
    move |error| match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => Error::PoolFull,
        _ => otherwise(error),
    }
}
