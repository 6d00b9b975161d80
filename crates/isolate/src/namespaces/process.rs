//! Processes identified by pid and start time, so that a reused pid is not mistaken for them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The signal SIGKILL in a set of signals.
const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);

/// Reads the start time of `pid` in clock ticks since boot: field 22 of `/proc/<pid>/stat`.
pub(super) fn start_ticks(pid: u32) -> io::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in field 2 may hold spaces and parentheses; the last `)` ends it.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace()
        .nth(19)
        .and_then(|ticks| ticks.parse().ok())
        .ok_or(io::ErrorKind::InvalidData.into())
}

/// Whether `pid` has ended, or ends as soon as it runs: one that was killed while it was frozen, with version 1 of control groups.
pub(super) fn is_killed(pid: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return true };
    status.lines().any(|line| {
        if let Some(state) = line.strip_prefix("State:") {
            return state.trim_start().starts_with(['Z', 'X']);
        }
        let signals = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        signals
            .and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok())
            .is_some_and(|signals| signals & SIGKILL != 0)
    })
}

/// Opens a descriptor for `pid`, closed on exec.
pub(super) fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(Into::into)
}

/// Opens a descriptor for the process `pid` that started at `ticks`; `None` when that process has ended.
///
/// # Errors
/// When this cannot be determined, for lack of descriptors for example.
pub(super) fn find(pid: u32, ticks: u64) -> io::Result<Option<OwnedFd>> {
    let descriptor = match open(pid) {
        Err(error) if is_gone(&error) => return Ok(None),
        opened => opened?,
    };
    // Checked after the descriptor is open: from then on the pid cannot be reused.
    match start_ticks(pid) {
        Ok(now) if now != ticks => return Ok(None),
        Ok(_) => {}
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    }
    // Readable when the process has ended, also before its parent has reaped it.
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&now))? > 0;
    Ok((!ended).then_some(descriptor))
}

/// Whether an error of a file below `/proc/<pid>` says that the process has ended.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Reads the user id, on the host, that `pid` runs as.
pub(super) fn user(pid: u32) -> io::Result<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.and_then(|ids| ids.split_whitespace().next()?.parse().ok()).ok_or(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_start_time_is_read_and_stable() {
        let pid = std::process::id();
        assert!(start_ticks(pid).unwrap() > 0);
        assert_eq!(start_ticks(pid).unwrap(), start_ticks(pid).unwrap());
        assert_eq!(user(pid).unwrap(), rustix::process::getuid().as_raw());
    }

    #[test]
    fn a_process_is_found_by_number_and_start_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let ticks = start_ticks(child.id()).unwrap();
        assert!(find(child.id(), ticks).unwrap().is_some());
        assert!(find(child.id(), ticks + 1).unwrap().is_none(), "another process with the same number");
        child.kill().unwrap();
        let waited = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), waited).unwrap();
        assert!(find(child.id(), ticks).unwrap().is_none(), "ended and not collected");
        child.wait().unwrap();
        assert!(find(child.id(), ticks).unwrap().is_none(), "ended and collected");
    }
}
