//! Handles of files: what the kernel calls a file that no path is known of.

use std::ffi::c_char;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Maximum size of a handle, bytes (`MAX_HANDLE_SZ`).
const MAX: usize = 128;
/// Flag of name_to_handle_at(2), Linux 6.5: a handle that need not be good for opening the file.
const AT_HANDLE_FID: libc::c_int = 0x200;

/// The handle of a file in its file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileHandle {
    /// How the file system reads the bytes.
    pub(crate) kind: i32,
    pub(crate) bytes: Vec<u8>,
}

/// `struct file_handle`, with room for any.
#[repr(C)]
struct Raw {
    length: u32,
    kind: i32,
    bytes: [u8; MAX],
}

/// The handle of an open file.
pub(crate) fn handle_of(file: impl AsFd) -> io::Result<FileHandle> {
    let mut raw = Raw { length: MAX as u32, kind: 0, bytes: [0; MAX] };
    let (empty, mut mount): (*const c_char, libc::c_int) = (c"".as_ptr(), 0);
    let flags = libc::AT_EMPTY_PATH | AT_HANDLE_FID;
    // SAFETY: `raw` has room for as many bytes as it says, and it, `mount` and the empty path live for the whole call.
    super::check(unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            file.as_fd().as_raw_fd(),
            empty,
            &raw mut raw,
            &raw mut mount,
            flags,
        )
    })?;
    let bytes = raw.bytes.get(..raw.length as usize).ok_or(io::ErrorKind::InvalidData)?;
    Ok(FileHandle { kind: raw.kind, bytes: bytes.to_vec() })
}

/// Opens a file as a place (`O_PATH`) in the file system that `mount` is in, which must not be a place itself.
pub(crate) fn open_handle(mount: impl AsFd, handle: &FileHandle) -> io::Result<OwnedFd> {
    let mut raw = Raw { length: handle.bytes.len() as u32, kind: handle.kind, bytes: [0; MAX] };
    raw.bytes
        .get_mut(..handle.bytes.len())
        .ok_or(io::ErrorKind::InvalidInput)?
        .copy_from_slice(&handle.bytes);
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: `raw` has as many bytes as it says, and lives for the whole call.
    let file = super::check(unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, mount.as_fd().as_raw_fd(), &raw const raw, flags)
    })?;
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(file as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_same_handle_each_time_and_another_one_has_another() {
        let (file, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        assert_eq!(handle_of(&file).unwrap(), handle_of(file.try_clone().unwrap()).unwrap());
        assert_ne!(handle_of(&file).unwrap(), handle_of(&other).unwrap());
        let long = FileHandle { kind: 1, bytes: vec![0; MAX + 1] };
        assert_eq!(open_handle(&file, &long).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
