//! Loading a seccomp filter without disabling set-user-id programs.

use std::io;

use super::check;

const SECCOMP_SET_MODE_FILTER: libc::c_long = 1;

/// Whether the kernel logs the calls that a filter refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusedCalls {
    /// Refused calls leave no trace.
    Silent,
    /// The kernel writes an audit record of each refused call, or a line in its log if no audit daemon runs.
    Logged,
}

/// Loads `program` for the calling thread and its descendants. `no_new_privs` is *not* set, because `sudo` must work
/// inside; so the caller needs `CAP_SYS_ADMIN` in its user namespace.
pub(crate) fn install_filter(
    program: &[seccompiler::sock_filter],
    refused_calls: RefusedCalls,
) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let filter =
        libc::sock_fprog { len: length, filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut() };
    let flags = match refused_calls {
        RefusedCalls::Silent => 0,
        RefusedCalls::Logged => libc::SECCOMP_FILTER_FLAG_LOG,
    };
    // SAFETY: seccompiler's sock_filter has the layout of the kernel's; the kernel only reads `len` entries of it.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, std::ptr::from_ref(&filter))
    })
    .map(drop)
}
