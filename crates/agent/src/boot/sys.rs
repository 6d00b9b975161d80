//! Inherited descriptors, and the allocator.
#![expect(unsafe_code, reason = "descriptors known by number only, and mallopt, have no safe interface")]

use std::os::fd::{FromRawFd, OwnedFd};

use rustix::io::FdFlags;

/// Takes over descriptor `number`, which children do not inherit; `None` when it is not open. Only for the numbers that the host
/// hands over, each once and before anything else is opened.
pub(super) fn adopt(number: i32) -> Option<OwnedFd> {
    // SAFETY: the call takes any number; one that is not open is an error.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return None;
    }
    // SAFETY: the descriptor is open, and by the rule above nothing else in this process owns it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&descriptor, FdFlags::CLOEXEC).ok()?;
    Some(descriptor)
}

/// Keeps the C library's allocator small: by default it gives each thread an arena of its own, and keeps freed memory.
pub(super) fn keep_memory_small() {
    const TRIM_ABOVE: i32 = 256 << 10;
    const MAP_ABOVE: i32 = 128 << 10;
    // SAFETY: parameters of the allocator, set before there is a second thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_ABOVE);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAP_ABOVE);
    }
}
