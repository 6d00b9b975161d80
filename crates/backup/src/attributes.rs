//! Attributes of files: what is kept of them, and how they are set.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::fs::{
    chownat, fchmod, fchown, fgetxattr, flistxattr, fsetxattr, lgetxattr, llistxattr, lsetxattr, utimensat,
};
use rustix::io::Errno;

/// Maximum size of all extended attributes of a file, bytes.
pub(crate) const MAX_XATTRS: usize = 8 << 20;

/// Name and value of extended attributes.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Owner, permissions and time of a member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owned {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
    pub(crate) modified: (i64, u32),
}

/// Whether an attribute is one of the file and not of the file system it is on, or of the host.
fn is_kept(name: &[u8]) -> bool {
    // Where overlayfs found the file in a lower layer, as a handle of that file system.
    name != b"trusted.overlay.origin"
        && !["security.selinux", "security.ima", "security.evm", "btrfs."]
            .iter()
            .any(|prefix| name.starts_with(prefix.as_bytes()))
}

/// The extended attributes of an open file or directory. `None` if they are too large to be kept.
pub(crate) fn xattrs(file: impl AsFd) -> io::Result<Option<Xattrs>> {
    read(|names| flistxattr(&file, names), |name, value| fgetxattr(&file, name, value))
}

/// The extended attributes of something in a directory that is not opened, such as a link.
pub(crate) fn xattrs_at(directory: impl AsFd, name: &CStr) -> io::Result<Option<Xattrs>> {
    let path = below(directory, name.to_bytes());
    read(|names| llistxattr(&*path, names), |name, value| lgetxattr(&*path, name, value))
}

fn read(
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    get: impl Fn(&CStr, &mut [u8]) -> rustix::io::Result<usize>,
) -> io::Result<Option<Xattrs>> {
    /// Maximum length of a list, and of a value.
    const MAX: usize = 64 << 10;
    let mut names = vec![0; 512];
    let length = match list(&mut names) {
        Ok(length) => length,
        Err(Errno::RANGE) => {
            names.resize(MAX, 0);
            match list(&mut names) {
                // Some file systems keep more names than the kernel lists.
                Err(Errno::TOOBIG) => return Ok(None),
                listed => listed?,
            }
        }
        Err(Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let (mut found, mut size) = (Vec::new(), 0);
    let mut value = Vec::new();
    for name in names[..length].split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        if !is_kept(name.to_bytes()) {
            continue;
        }
        value.resize(MAX, 0);
        match get(name, &mut value) {
            Ok(length) => {
                size += name.to_bytes().len() + length;
                found.push((name.to_bytes().to_vec(), value[..length].to_vec()));
            }
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((size <= MAX_XATTRS).then_some(found))
}

/// Sets owner, extended attributes and permissions, in this order: a change of the owner clears set-id bits and capabilities.
pub(crate) fn set(file: impl AsFd, owned: &Owned, xattrs: &Xattrs) -> rustix::io::Result<()> {
    fchown(&file, Some(Uid::from_raw(owned.uid)), Some(Gid::from_raw(owned.gid)))?;
    for (name, value) in xattrs {
        fsetxattr(&file, name.as_slice(), value, XattrFlags::empty())?;
    }
    fchmod(&file, Mode::from_raw_mode(owned.mode))
}

/// Sets the attributes of something in a directory that is not opened.
pub(crate) fn set_at(
    directory: impl AsFd,
    name: &[u8],
    owned: &Owned,
    xattrs: &Xattrs,
) -> rustix::io::Result<()> {
    let (user, group) = (Uid::from_raw(owned.uid), Gid::from_raw(owned.gid));
    chownat(&directory, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    let path = below(&directory, name);
    for (attribute, value) in xattrs {
        lsetxattr(&*path, attribute.as_slice(), value, XattrFlags::empty())?;
    }
    utimensat(&directory, name, &times(owned.modified), AtFlags::SYMLINK_NOFOLLOW)
}

/// Times for a file that was last modified at a moment.
pub(crate) fn times((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds) };
    Timestamps { last_access: time, last_modification: time }
}

/// The path of something in an open directory, whose last name no call that begins with `l` follows.
fn below(directory: impl AsFd, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", directory.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}
