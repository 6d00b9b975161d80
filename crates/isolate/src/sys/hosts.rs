//! Host name look-ups of the C library.

use std::ffi::{CStr, c_char, c_int};
use std::io;

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// Sets the sources of a database of `/etc/nsswitch.conf`; see <nss.h>.
    fn __nss_configure_lookup(database: *const c_char, sources: *const c_char) -> c_int;
}

/// Limits host name look-ups of this process to `/etc/hosts` and DNS, whatever `/etc/nsswitch.conf` says. Both are part of the C library; every
/// other source is a shared object.
#[cfg(target_env = "gnu")]
pub(crate) fn use_hosts_file_and_dns() -> io::Result<()> {
    const DATABASE: &CStr = c"hosts";
    const SOURCES: &CStr = c"files dns";
    // SAFETY: both arguments are constants that end with a zero byte, and the call copies what it keeps of them.
    match unsafe { __nss_configure_lookup(DATABASE.as_ptr(), SOURCES.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Does nothing: other C libraries have no other sources.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn use_hosts_file_and_dns() -> io::Result<()> {
    Ok(())
}
