//! Descriptors of frozen processes, of which the server gets copies: a socket or a terminal is asked about itself.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Numbers of the descriptors of a process, and what they refer to as `/proc` has it. A process that has ended has none.
pub(super) fn of(pid: u32) -> Vec<(i32, PathBuf)> {
    let descriptors = std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd"));
    descriptors
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, std::fs::read_link(entry.path()).ok()?))
        })
        .collect()
}

/// A copy of a descriptor of a process.
pub(super) fn copy(pid: u32, number: i32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_getfd(pidfd_open(pid, PidfdFlags::empty())?, number, PidfdGetfdFlags::empty())?)
}

/// Number of the socket that a descriptor refers to.
pub(super) fn socket(target: &Path) -> Option<u64> {
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn sockets_of_this_process_are_found_and_copied() {
        let own = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let found = of(std::process::id());
        let (_, target) = found.iter().find(|(number, _)| *number == own.as_raw_fd()).unwrap();
        assert!(socket(target).is_some());
        assert_eq!(socket(Path::new("/dev/null")), None);
        let copy = std::net::UdpSocket::from(copy(std::process::id(), own.as_raw_fd()).unwrap());
        assert_eq!(copy.local_addr().unwrap(), own.local_addr().unwrap());
    }
}
