//! A process by number that cannot be mistaken for a later one of the same number.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Start time of `pid` in clock ticks since boot: field 22 of `/proc/<pid>/stat`.
pub(super) fn start_ticks(pid: u32) -> io::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in field 2 may hold spaces and parentheses; the last `)` ends it.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace()
        .nth(19)
        .and_then(|ticks| ticks.parse().ok())
        .ok_or(io::ErrorKind::InvalidData.into())
}

/// A descriptor for `pid`, not passed on by exec.
pub(super) fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_start_time_is_read_and_stable() {
        let pid = std::process::id();
        assert!(start_ticks(pid).unwrap() > 0);
        assert_eq!(start_ticks(pid).unwrap(), start_ticks(pid).unwrap());
    }
}
