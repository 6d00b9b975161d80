//! The pool's image: a btrfs in a sparse file, for hosts whose data directory is on another file system.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount as mount_fs, unmount as unmount_fs};

use super::{at, features};
use crate::sys;
use crate::{Error, Result};

/// Maximum default size of an image, GiB. The file is sparse: it takes only the space that is written.
const MAX_DEFAULT_GIB: u64 = 256;

const FLAGS: MountFlags = MountFlags::NOATIME.union(MountFlags::NODEV).union(MountFlags::NOSUID);

/// Mount options. The first files take all room that is not yet for data or metadata, unless every ninth part is kept for metadata: in
/// a full pool, nothing could then be created for a minute after files were deleted, because parts without files are only given back
/// in the background.
const OPTIONS: &CStr = c"metadata_ratio=8";

/// Whether `data_dir` has an image.
pub(super) fn exists(data_dir: &Path) -> bool {
    path(data_dir).exists()
}

/// Mounts the image of `data_dir` at `root`. Creates a missing image, and deletes it again if it cannot be mounted.
pub(super) fn mount(data_dir: &Path, root: &Path, size_gib: Option<u64>) -> Result<()> {
    let image = path(data_dir);
    if image.exists() {
        return attach(&image, root);
    }
    make(data_dir, &image, size_gib)?;
    attach(&image, root).inspect_err(|_| {
        let _ = std::fs::remove_file(&image);
    })
}

/// Unmounts everything that is mounted at `root`; nothing mounted is no error.
pub(super) fn unmount(root: &Path) -> Result<()> {
    loop {
        match unmount_fs(root, UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(error) => return Err(at("unmount", root)(error.into())),
        }
    }
}

/// Path of the image of `data_dir`.
pub(super) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("pool.img")
}

fn attach(image: &Path, root: &Path) -> Result<()> {
    // An exiting spawner may hold the mount: a file system must not be mounted from two devices.
    if let Some(device) = sys::loop_of(image)
        && mount_fs(&device, root, "btrfs", FLAGS, OPTIONS).is_ok()
    {
        return Ok(());
    }
    let (device, open) = sys::attach_loop(image).map_err(at("attach", image))?;
    mount_fs(&device, root, "btrfs", FLAGS, OPTIONS).map_err(|error| {
        let _ = sys::detach_loop(&open);
        refusal(image, error)
    })
}

/// The error for an image that the kernel refuses to mount.
fn refusal(image: &Path, error: Errno) -> Error {
    // All that the kernel says about a feature that it does not know is that it is invalid.
    if error == Errno::INVAL && !features::supported() && features::uses_simple_quotas(image) {
        return Error::SimpleQuotas { path: image.to_owned(), release: features::release() };
    }
    at("mount", image)(error.into())
}

fn make(data_dir: &Path, image: &Path, size_gib: Option<u64>) -> Result<()> {
    let disk = rustix::fs::statvfs(data_dir).map_err(|e| at("inspect", data_dir)(e.into()))?;
    // Not all of the free space: a pool that promises more than the disk has would fail in the middle of a write.
    let size = size_gib
        .map_or_else(|| (disk.f_bavail * disk.f_frsize / 10 * 8).min(MAX_DEFAULT_GIB << 30), |gib| gib << 30);
    let fresh = image.with_extension("img.new");
    let file = std::fs::File::create(&fresh).map_err(at("create", &fresh))?;
    file.set_len(size).map_err(at("size", &fresh))?;
    let failed = |reason: String| Error::Tool { tool: "mkfs.btrfs", reason };
    let made = Command::new("mkfs.btrfs")
        .args(["--quiet", "--force", "--metadata", "single", "--label", "sandcove"])
        .arg(&fresh)
        .output()
        .map_err(|error| failed(format!("{error} (install btrfs-progs)")))?;
    if !made.status.success() {
        let _ = std::fs::remove_file(&fresh);
        return Err(Error::tool("mkfs.btrfs", &made));
    }
    file.sync_all().map_err(at("sync", &fresh))?;
    std::fs::rename(&fresh, image).map_err(at("rename", &fresh))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::mount::mount_bind;

    use super::*;

    #[test]
    fn the_image_of_another_root_is_not_taken_for_the_own_one() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let data_dir = tempfile::tempdir().unwrap();
        let image = data_dir.path().join("pool.img");
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(1 << 20).unwrap();
        let (device, open) = sys::attach_loop(&image).unwrap();
        let own = sys::loop_of(&image);
        // In a container, another file has the path.
        let other = data_dir.path().join("other.img");
        std::fs::File::create(&other).unwrap();
        mount_bind(&other, &image).unwrap();
        let covered = sys::loop_of(&image);
        unmount(&image).unwrap();
        sys::detach_loop(&open).unwrap();
        assert_eq!((own, covered), (Some(device), None));
    }

    #[test]
    fn files_can_be_created_as_soon_as_a_full_pool_has_room() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let data_dir = tempfile::tempdir().unwrap();
        let root = data_dir.path().join("pool");
        std::fs::create_dir(&root).unwrap();
        mount(data_dir.path(), &root, Some(4)).unwrap();
        let filler = std::fs::File::create(root.join("filler")).unwrap();
        let (mut size, mut step) = (0, 1 << 30);
        while step >= 1 << 12 {
            match fallocate(&filler, FallocateFlags::empty(), size, step) {
                Ok(()) => size += step,
                Err(_) => step /= 2,
            }
        }
        drop(filler);
        std::fs::remove_file(root.join("filler")).unwrap();
        let created =
            (0..10_000).try_for_each(|number| std::fs::write(root.join(number.to_string()), [0; 1500]));
        unmount(&root).unwrap();
        assert!(size > 2 << 30, "{size}");
        created.unwrap();
    }
}
