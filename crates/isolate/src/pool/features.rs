//! Simple quotas: kernels before Linux 6.7 lack them, and do not mount a pool that has them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::image;

/// Kernel release from which btrfs has simple quotas.
const FIRST_RELEASE: (u32, u32) = (6, 7);
/// Directory with a file for each feature that btrfs has, once it is loaded.
const FEATURES: &str = "/sys/fs/btrfs/features";
/// Place and size of the first superblock, see `struct btrfs_super_block`.
const SUPERBLOCK: u64 = 64 << 10;
const SUPERBLOCK_BYTES: usize = 4096;
const MAGIC: (usize, &[u8]) = (0x40, b"_BHRfS_M");
const INCOMPAT_FLAGS: usize = 0xbc;
const SIMPLE_QUOTA: u64 = 1 << 16;

/// Quotas that the kernel and the pool of a data directory allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolQuotas {
    /// The kernel has simple quotas.
    Simple,
    /// The kernel has full quotas only.
    Full,
    /// The pool has simple quotas and the kernel does not: it cannot be mounted.
    Unmountable,
}

impl PoolQuotas {
    /// The quotas for the data directory `data_dir`, which need not exist.
    pub fn of(data_dir: &Path) -> Self {
        match (supported(), uses_simple_quotas(&image::path(data_dir))) {
            (true, _) => Self::Simple,
            (false, false) => Self::Full,
            (false, true) => Self::Unmountable,
        }
    }
}

/// Release of the running kernel.
pub(super) fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Whether the running kernel has simple quotas.
pub(super) fn supported() -> bool {
    let features = Path::new(FEATURES);
    if features.is_dir() { features.join("simple_quota").exists() } else { is_new(&release()) }
}

fn is_new(release: &str) -> bool {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    matches!((parts.next(), parts.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= FIRST_RELEASE)
}

/// Whether the file is a btrfs that only kernels with simple quotas mount.
pub(super) fn uses_simple_quotas(image: &Path) -> bool {
    let mut block = [0; SUPERBLOCK_BYTES];
    let read = File::open(image).and_then(|file| file.read_exact_at(&mut block, SUPERBLOCK));
    read.is_ok() && flags(&block).is_some_and(|flags| flags & SIMPLE_QUOTA != 0)
}

/// Features that a kernel must know to mount the file system of this superblock.
fn flags(block: &[u8]) -> Option<u64> {
    let (at, magic) = MAGIC;
    block.get(at..)?.starts_with(magic).then_some(())?;
    Some(u64::from_le_bytes(*block.get(INCOMPAT_FLAGS..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;

    #[test]
    fn releases_are_compared_as_numbers() {
        assert!(is_new("6.7.0") && is_new("6.12.48+deb13-cloud-amd64") && is_new("10.0"));
        assert!(!is_new("6.1.0-41-amd64") && !is_new("5.19") && !is_new("unknown"));
    }

    #[test]
    fn a_pool_is_seen_to_have_simple_quotas() {
        if !rustix::process::geteuid().is_root() || !supported() {
            eprintln!("skipped: needs root and a kernel with simple quotas");
            return;
        }
        let data_dir = tempfile::tempdir().unwrap();
        let image = image::path(data_dir.path());
        assert!(!uses_simple_quotas(&image));
        std::fs::create_dir(data_dir.path().join("pool")).unwrap();
        image::mount(data_dir.path(), &data_dir.path().join("pool"), Some(1)).unwrap();
        Pool::close(data_dir.path()).unwrap();
        assert!(!uses_simple_quotas(&image), "it has no quotas yet");
        drop(Pool::open(data_dir.path(), None).unwrap());
        Pool::close(data_dir.path()).unwrap();
        assert!(uses_simple_quotas(&image));
        assert_eq!(PoolQuotas::of(data_dir.path()), PoolQuotas::Simple);
    }
}
