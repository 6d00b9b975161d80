//! btrfs subvolumes, by ioctl: creating or deleting a subvolume takes well under a millisecond; starting a tool for it would
//! take longer than the sandbox. Structure layouts and numbers: `linux/btrfs.h`.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::check;

const BTRFS_SUPER_MAGIC: i64 = 0x9123_683E;
const MAGIC: u64 = 0x94;

pub(super) const fn iow(number: u64, size: usize) -> libc::c_ulong {
    (1 << 30) | ((size as u64) << 16) | (MAGIC << 8) | number
}

pub(super) const fn iowr(number: u64, size: usize) -> libc::c_ulong {
    (3 << 30) | ((size as u64) << 16) | (MAGIC << 8) | number
}

pub(super) const fn ior(number: u64, size: usize) -> libc::c_ulong {
    (2 << 30) | ((size as u64) << 16) | (MAGIC << 8) | number
}

const PATH_NAME_MAX: usize = 4087;

#[repr(C)]
struct VolArgs {
    fd: i64,
    name: [u8; PATH_NAME_MAX + 1],
}

const SUBVOL_NAME_MAX: usize = 4039;

#[repr(C)]
struct VolArgs2 {
    fd: i64,
    transaction: u64,
    flags: u64,
    unused: [u64; 4],
    /// A name, or the number of a subvolume in the first eight bytes.
    name: [u8; SUBVOL_NAME_MAX + 1],
}

pub(super) fn ioctl<T>(fd: BorrowedFd<'_>, code: libc::c_ulong, argument: &mut T) -> io::Result<()> {
    // SAFETY: each code used here, in `btrfs_tree.rs` and in `quota.rs` encodes the size of, and takes a pointer to, the
    // structure it is called with.
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

/// Deletes the subvolume with that number, wherever it is in the file system of `fd`.
pub(crate) fn delete_subvolume_by_id(fd: BorrowedFd<'_>, number: u64) -> io::Result<()> {
    const BY_ID: u64 = 1 << 4;
    let mut name = [0; SUBVOL_NAME_MAX + 1];
    name[..8].copy_from_slice(&number.to_ne_bytes());
    let mut args = VolArgs2 { fd: 0, transaction: 0, flags: BY_ID, unused: [0; 4], name };
    ioctl(fd, iow(63, size_of::<VolArgs2>()), &mut args)
}

/// Copies the subvolume `source` to `name` in `parent`, sharing all data. The copy and all data written before are on
/// disk when this returns: the kernel flushes the subvolume and commits.
pub(crate) fn copy_subvolume(
    source: BorrowedFd<'_>,
    parent: BorrowedFd<'_>,
    name: &str,
    read_only: bool,
) -> io::Result<()> {
    const READ_ONLY: u64 = 1 << 1;
    let mut args = VolArgs2 {
        fd: source.as_raw_fd().into(),
        transaction: 0,
        flags: if read_only { READ_ONLY } else { 0 },
        unused: [0; 4],
        name: named(name)?,
    };
    ioctl(parent, iow(23, size_of::<VolArgs2>()), &mut args)
}

#[repr(C)]
struct InoLookup {
    treeid: u64,
    objectid: u64,
    name: [u8; 4080],
}

/// Looks up the number of the subvolume that contains `fd`.
pub(crate) fn subvolume_id(fd: BorrowedFd<'_>) -> io::Result<u64> {
    const FIRST_FREE_OBJECTID: u64 = 256;
    let mut args = InoLookup { treeid: 0, objectid: FIRST_FREE_OBJECTID, name: [0; 4080] };
    ioctl(fd, iowr(18, size_of::<InoLookup>()), &mut args)?;
    Ok(args.treeid)
}

/// Looks up a path of the file with the number `inode` in subvolume `subvolume`, relative to the subvolume, in the file system of `fd`.
pub(crate) fn path_of_inode(fd: BorrowedFd<'_>, subvolume: u64, inode: u64) -> io::Result<PathBuf> {
    let mut args = InoLookup { treeid: subvolume, objectid: inode, name: [0; 4080] };
    ioctl(fd, iowr(18, size_of::<InoLookup>()), &mut args)?;
    let path = args.name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(PathBuf::from(OsStr::from_bytes(path.strip_suffix(b"/").unwrap_or(path))))
}
