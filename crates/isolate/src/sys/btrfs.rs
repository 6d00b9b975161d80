//! btrfs subvolumes and quotas, by ioctl: creating or deleting a subvolume takes well under a millisecond; starting a
//! tool for it would take longer than the sandbox. Structure layouts and numbers: `linux/btrfs.h`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

const BTRFS_SUPER_MAGIC: i64 = 0x9123_683E;
const MAGIC: u64 = 0x94;

const fn iow(number: u64, size: usize) -> libc::c_ulong {
    (1 << 30) | ((size as u64) << 16) | (MAGIC << 8) | number
}

const fn iowr(number: u64, size: usize) -> libc::c_ulong {
    (3 << 30) | ((size as u64) << 16) | (MAGIC << 8) | number
}

const fn ior(number: u64, size: usize) -> libc::c_ulong {
    (2 << 30) | ((size as u64) << 16) | (MAGIC << 8) | number
}

const PATH_NAME_MAX: usize = 4087;

#[repr(C)]
struct VolArgs {
    fd: i64,
    name: [u8; PATH_NAME_MAX + 1],
}

#[repr(C)]
struct QuotaCtl {
    cmd: u64,
    status: u64,
}

#[repr(C)]
#[derive(Default)]
struct QgroupLimit {
    qgroupid: u64,
    flags: u64,
    max_referenced: u64,
    max_exclusive: u64,
    reserved_referenced: u64,
    reserved_exclusive: u64,
}

#[repr(C)]
struct QgroupCreate {
    create: u64,
    qgroupid: u64,
}

/// Modes of quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuotaMode {
    /// Simple quotas, Linux 6.7 and later: cheap; data is charged to the subvolume that wrote it first.
    Simple,
    /// Classic quota groups.
    Full,
}

fn ioctl<T>(fd: BorrowedFd<'_>, code: libc::c_ulong, argument: &mut T) -> io::Result<()> {
    // SAFETY: each code used in this file encodes the size of, and takes a pointer to, the structure it is called with.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), code as _, std::ptr::from_mut(argument)) }.into()).map(drop)
}

fn named<const N: usize>(name: &str) -> io::Result<[u8; N]> {
    if name.is_empty() || name.len() >= N || name.contains(['/', '\0']) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut field = [0; N];
    field[..name.len()].copy_from_slice(name.as_bytes());
    Ok(field)
}

/// Whether `fd` is on btrfs.
pub(crate) fn is_btrfs(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(rustix::fs::fstatfs(fd)?.f_type as i64 == BTRFS_SUPER_MAGIC)
}

/// Creates the empty subvolume `name` in directory `parent`.
pub(crate) fn create_subvolume(parent: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut args = VolArgs { fd: 0, name: named(name)? };
    ioctl(parent, iow(14, size_of::<VolArgs>()), &mut args)
}

/// Deletes the subvolume `name` in `parent` with its contents; the space is freed in the background.
pub(crate) fn delete_subvolume(parent: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut args = VolArgs { fd: 0, name: named(name)? };
    ioctl(parent, iow(15, size_of::<VolArgs>()), &mut args)
}

/// Copies the subvolume `source` to `name` in `parent`, sharing all data. The copy and all data written before are on
/// disk when this returns: the kernel flushes the subvolume and commits.
pub(crate) fn copy_subvolume(
    source: BorrowedFd<'_>,
    parent: BorrowedFd<'_>,
    name: &str,
    read_only: bool,
) -> io::Result<()> {
    const NAME_MAX: usize = 4039;
    const READ_ONLY: u64 = 1 << 1;
    #[repr(C)]
    struct VolArgs2 {
        fd: i64,
        transaction: u64,
        flags: u64,
        unused: [u64; 4],
        name: [u8; NAME_MAX + 1],
    }
    let mut args = VolArgs2 {
        fd: source.as_raw_fd().into(),
        transaction: 0,
        flags: if read_only { READ_ONLY } else { 0 },
        unused: [0; 4],
        name: named(name)?,
    };
    ioctl(parent, iow(23, size_of::<VolArgs2>()), &mut args)
}

/// Enables quotas; enabled ones are left as they are.
pub(crate) fn enable_quota(fd: BorrowedFd<'_>, mode: QuotaMode) -> io::Result<()> {
    let cmd = match mode {
        QuotaMode::Simple => 4,
        QuotaMode::Full => 1,
    };
    match ioctl(fd, iowr(40, size_of::<QuotaCtl>()), &mut QuotaCtl { cmd, status: 0 }) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        other => other,
    }
}

/// Limits the space of the subvolume `fd`, in bytes.
pub(crate) fn set_limit(fd: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    const MAX_REFERENCED: u64 = 1;
    // Group id 0 means the subvolume's own.
    let mut args = QgroupLimit { flags: MAX_REFERENCED, max_referenced: bytes, ..QgroupLimit::default() };
    ioctl(fd, ior(43, size_of::<QgroupLimit>()), &mut args)
}

/// Looks up the number of the subvolume that contains `fd`.
pub(crate) fn subvolume_id(fd: BorrowedFd<'_>) -> io::Result<u64> {
    #[repr(C)]
    struct InoLookup {
        treeid: u64,
        objectid: u64,
        name: [u8; 4080],
    }
    const FIRST_FREE_OBJECTID: u64 = 256;
    let mut args = InoLookup { treeid: 0, objectid: FIRST_FREE_OBJECTID, name: [0; 4080] };
    ioctl(fd, iowr(18, size_of::<InoLookup>()), &mut args)?;
    Ok(args.treeid)
}

/// Removes the quota group of a deleted subvolume.
pub(crate) fn remove_qgroup(fd: BorrowedFd<'_>, subvolume: u64) -> io::Result<()> {
    ioctl(fd, iow(42, size_of::<QgroupCreate>()), &mut QgroupCreate { create: 0, qgroupid: subvolume })
}

/// Reads the space that the subvolume of `fd` uses, in bytes, from its quota group.
pub(crate) fn subvolume_usage(fd: BorrowedFd<'_>) -> io::Result<u64> {
    const QUOTA_TREE: u64 = 8;
    const QGROUP_INFO: u32 = 242;

    #[repr(C)]
    struct SearchKey {
        tree: u64,
        min_object: u64,
        max_object: u64,
        min_offset: u64,
        max_offset: u64,
        min_transaction: u64,
        max_transaction: u64,
        min_type: u32,
        max_type: u32,
        items: u32,
        unused: [u32; 9],
    }
    #[repr(C)]
    struct Search {
        key: SearchKey,
        buffer: [u8; 4096 - size_of::<SearchKey>()],
    }
    let subvolume = subvolume_id(fd)?;
    let mut args = Search {
        key: SearchKey {
            tree: QUOTA_TREE,
            min_object: 0,
            max_object: 0,
            min_offset: subvolume,
            max_offset: subvolume,
            min_transaction: 0,
            max_transaction: u64::MAX,
            min_type: QGROUP_INFO,
            max_type: QGROUP_INFO,
            items: 1,
            unused: [0; 9],
        },
        buffer: [0; 4096 - size_of::<SearchKey>()],
    };
    ioctl(fd, iowr(17, size_of::<Search>()), &mut args)?;
    // A 32-byte item header, then: generation, referenced, …, each 64-bit little-endian.
    const REFERENCED: usize = 32 + 8;
    let bytes = args.buffer.get(REFERENCED..REFERENCED + 8).and_then(|bytes| bytes.try_into().ok());
    match bytes {
        Some(bytes) if args.key.items == 1 => Ok(u64::from_le_bytes(bytes)),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}
