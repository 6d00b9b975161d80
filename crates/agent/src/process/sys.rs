//! Registers descriptors with the event loop.
#![expect(unsafe_code, reason = "the runtime's safe way to watch a descriptor of any kind is deprecated")]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a non-blocking descriptor.
pub(super) fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor stays open and the same as long as the watch exists, since that owns it and `OwnedFd` has no
    // way to change the descriptor it holds.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, interest) }?)
}
