//! Host name look-ups of a program without shared objects.

use crate::sys;

/// Limits host name look-ups of this process to `/etc/hosts` and DNS, for a statically linked program: the C library would load further sources
/// that `/etc/nsswitch.conf` names from shared objects, which only a program with the same C library can use.
///
/// # Errors
/// If the C library refuses the sources.
pub fn use_hosts_file_and_dns() -> std::io::Result<()> {
    sys::use_hosts_file_and_dns()
}
