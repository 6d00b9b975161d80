//! The one unsafe call of this crate.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime, to wait until it is readable.
#[expect(unsafe_code, reason = "the runtime cannot check that a descriptor stays what it is")]
pub(super) fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and keeps its number until it is dropped, and `AsyncFd` owns it until then.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    watched.map_err(|error| error.into_parts().1)
}
