//! Sockets, and descriptors in the async runtime.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::check;

/// Creates a non-blocking TCP socket in the network namespace of the calling thread; `v6` chooses the family.
pub(crate) fn tcp_socket(v6: bool) -> io::Result<OwnedFd> {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: plain integers in, a new descriptor out.
    let fd = check(
        unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) }
            .into(),
    )?;
    // SAFETY: the descriptor is new and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Marks every packet that `socket` sends with `mark`, for the firewall.
pub(crate) fn mark(socket: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
    // SAFETY: the kernel reads four bytes, those of `mark`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MARK,
            std::ptr::from_ref(&mark).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    check(result.into()).map(drop)
}

/// Maximum size of the value of an option that is read, bytes.
const MAX_OPTION: usize = 128;

/// Value of an option of a socket, as the kernel has it; one that is longer than [`MAX_OPTION`] is cut off.
pub(crate) fn socket_option(socket: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<Vec<u8>> {
    let mut value = vec![0_u8; MAX_OPTION];
    let mut length = MAX_OPTION as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `value`, and the length into `length`; both outlive the call.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut length)
    };
    check(result.into())?;
    value.truncate(length as usize);
    Ok(value)
}

/// Sets an option of a socket to a value that [`socket_option`] has returned.
pub(crate) fn set_socket_option(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &[u8],
) -> io::Result<()> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `value`, which outlives the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), length) };
    check(result.into()).map(drop)
}

/// Registers `fd` with the async runtime to wait until it is readable. Needs a running tokio runtime.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open and means the same file until it is dropped, which only the AsyncFd can do.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(Into::into)
}
