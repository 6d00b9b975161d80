//! What of the descriptors of a sandbox cannot be stored although CRIU does not say so: descriptors that were sent and not received, and locks of
//! a process on a file that it has opened for another one, too.

use super::budget::Budget;
use super::descriptors;
use super::numbers::named;
use crate::{Result, sys};

/// The reason why the descriptors of the frozen processes `pids` cannot be stored.
pub(super) fn reason(pids: &[u32], budget: &Budget) -> Result<Option<String>> {
    for pid in pids {
        for (number, target) in descriptors::of(*pid) {
            budget.check()?;
            // One that is closed meanwhile has none.
            let Ok(info) = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")) else { continue };
            if descriptors::socket(&target).is_some() && has_descriptors(&info) {
                // CRIU loses them in some process trees.
                let reason = format!("{} has a socket with descriptors that were not received", named(*pid));
                return Ok(Some(reason));
            }
            if !has_lock(&info) {
                continue;
            }
            for other in pids {
                // CRIU loses the lock where a process that is not its descendant has the file from it.
                if shares(*pid, number, *other, budget)? {
                    let (holder, other) = (named(*pid), named(*other));
                    let reason = format!("{holder} has a lock on a file that {other} has from it");
                    return Ok(Some(reason));
                }
            }
        }
    }
    Ok(None)
}

/// Whether messages of a socket have descriptors, by its `fdinfo`.
fn has_descriptors(info: &str) -> bool {
    let count = info.lines().find_map(|line| line.strip_prefix("scm_fds:"));
    count.is_some_and(|count| count.trim() != "0")
}

/// Whether a process has a lock of its own on a file, by its `fdinfo`.
fn has_lock(info: &str) -> bool {
    info.lines().filter_map(|line| line.strip_prefix("lock:")).any(|lock| lock.contains(" POSIX "))
}

/// Whether `other` has what `pid` has opened as `number`, and is not a descendant of it.
fn shares(pid: u32, number: i32, other: u32, budget: &Budget) -> Result<bool> {
    budget.check()?;
    let has = |theirs| sys::is_same_file((pid, number), (other, theirs)).unwrap_or(false);
    Ok(!descends(other, pid) && descriptors::of(other).into_iter().any(|(theirs, _)| has(theirs)))
}

/// Whether a process is `ancestor` or a descendant of it.
fn descends(mut process: u32, ancestor: u32) -> bool {
    while process != ancestor {
        match parent(process) {
            Some(parent) if parent > 0 => process = parent,
            _ => return false,
        }
    }
    true
}

fn parent(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn descriptors_in_messages_and_locks_of_processes_are_found() {
        assert!(has_descriptors("pos:\t0\nscm_fds: 2\n"));
        assert!(!has_descriptors("pos:\t0\nscm_fds: 0\n"));
        assert!(has_lock("pos:\t0\nlock:\t1: POSIX  ADVISORY  WRITE 38 00:2f:281 38 47\n"));
        assert!(!has_lock("pos:\t0\nlock:\t1: FLOCK  ADVISORY  WRITE 38 00:2f:281 0 EOF\n"));
    }

    #[test]
    fn a_copy_of_a_descriptor_is_the_same_file() {
        let file = tempfile::tempfile().unwrap();
        let (copy, other) = (file.try_clone().unwrap(), tempfile::tempfile().unwrap());
        let own = |file: &std::fs::File| (std::process::id(), file.as_raw_fd());
        assert!(sys::is_same_file(own(&file), own(&copy)).unwrap());
        assert!(!sys::is_same_file(own(&file), own(&other)).unwrap());
        assert!(descends(std::process::id(), 1) && !descends(1, std::process::id()));
        // It has them itself, and is no stranger to them.
        assert!(!shares(std::process::id(), file.as_raw_fd(), std::process::id(), &Budget::start()).unwrap());
    }
}
