//! What cannot be stored although CRIU does not say so: it would wait for ever, or restore something else.

use std::io;
use std::path::Path;

use rustix::io::ioctl_fionread;
use rustix::termios::{LocalModes, tcgetattr};

use super::budget::Budget;
use super::numbers::named;
use super::{descriptors, terminals};
use crate::{Error, Result};

/// Functions of the kernel in which a process waits that was stopped by a signal, or by a debugger, before it was frozen. After a dump that CRIU
/// has given up, processes are frozen in the latter with no debugger, and can be stored again.
const STOPPED_IN: &str = "do_signal_stop";
const TRACED_IN: &str = "ptrace_stop";

/// Checks the frozen processes `pids`. `waits_while_frozen` says that whoever attaches to a stopped process waits until it is thawed,
/// as with control groups of version 1.
pub(super) fn check(pids: &[u32], waits_while_frozen: bool, budget: &Budget) -> Result<()> {
    for pid in pids {
        budget.check()?;
        let directory = Path::new("/proc").join(pid.to_string());
        if waits_while_frozen && is_stopped(&directory) {
            return Err(refused(format!("{} is stopped", named(*pid))));
        }
        if has_unread_input(*pid) {
            // CRIU types it again, and the terminal shows it once more.
            return Err(refused(format!("{} has a terminal with input that was not read", named(*pid))));
        }
        if has_personality(&directory) {
            // CRIU restores the default.
            return Err(refused(format!("{} has changed its personality", named(*pid))));
        }
        if let Some((child, status)) = dead_with_high_status(&directory) {
            // CRIU restores its lower seven bits.
            return Err(refused(format!(
                "{} has ended with status {status}, which its parent, {}, has not read",
                named(child),
                named(*pid)
            )));
        }
    }
    if let Some(pid) = terminals::without(pids) {
        // CRIU's copy is forked by a process that has it.
        return Err(refused(format!("{} has given up the terminal of its session", named(pid))));
    }
    if let Some(pid) = terminals::adopted(pids) {
        return Err(refused(format!(
            "{} was adopted by a subreaper, and its session has no first process",
            named(pid)
        )));
    }
    Ok(())
}

/// The error for a sandbox that cannot be stored.
pub(crate) fn refused(reason: String) -> Error {
    Error::NotStored { reason }
}

fn is_stopped(process: &Path) -> bool {
    let threads = std::fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    // A frozen process has the state of frozen ones; where it waits is different.
    threads
        .filter_map(|thread| {
            Some((std::fs::read_to_string(thread.path().join("wchan")).ok()?, thread.path()))
        })
        .any(|(function, thread)| match function.trim() {
            STOPPED_IN => true,
            TRACED_IN => is_traced(&thread),
            _ => false,
        })
}

/// Whether a thread has a debugger; one that cannot be read may have.
fn is_traced(thread: &Path) -> bool {
    let status = std::fs::read_to_string(thread.join("status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("TracerPid:")).is_none_or(|pid| pid.trim() != "0")
}

/// Whether a terminal of a process, which shows what is typed, has whole lines that no process has read.
fn has_unread_input(pid: u32) -> bool {
    let descriptors = descriptors::of(pid).into_iter().filter(|(_, path)| is_terminal(path));
    // One that is closed meanwhile has none.
    descriptors.map(|(number, _)| number).any(|number| unread_input(pid, number).unwrap_or(false))
}

/// Whether a path is that of a terminal, and not that of what makes them (`/dev/pts/ptmx`), of which programs read output.
fn is_terminal(path: &Path) -> bool {
    path.strip_prefix("/dev/pts")
        .is_ok_and(|name| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok()))
}

fn unread_input(pid: u32, descriptor: i32) -> io::Result<bool> {
    let terminal = descriptors::copy(pid, descriptor)?;
    let shows = tcgetattr(&terminal)?.local_modes.contains(LocalModes::ECHO);
    Ok(shows && ioctl_fionread(&terminal)? > 0)
}

fn has_personality(process: &Path) -> bool {
    // Without text the process has ended meanwhile.
    std::fs::read_to_string(process.join("personality"))
        .is_ok_and(|text| !text.trim().trim_start_matches('0').is_empty())
}

/// A dead child that has ended with a status above 127, and the status.
fn dead_with_high_status(process: &Path) -> Option<(u32, u32)> {
    let threads = std::fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    children
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
        .find_map(|child| {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
            high_status(&stat).map(|status| (child, status))
        })
}

/// The status that a dead process has ended with, by its `stat`, if it is above 127.
fn high_status(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_whitespace();
    let is_dead = fields.next()? == "Z";
    let status = fields.next_back()?.parse::<u32>().ok()? >> 8;
    (is_dead && status > 127).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_terminals_is_none() {
        assert!(is_terminal(Path::new("/dev/pts/0")));
        assert!(!is_terminal(Path::new("/dev/pts/ptmx")));
        assert!(!is_terminal(Path::new("/dev/ptmx")));
    }

    #[test]
    fn only_a_status_that_is_cut_off_is_found() {
        let stat = |state, code| format!("7 (a) b) {state} 1 7 7 0 -1 0 {code}\n");
        assert_eq!(high_status(&stat("Z", 137 << 8)), Some(137));
        assert_eq!(high_status(&stat("Z", 127 << 8)), None);
        // Ended by a signal, with a core dump.
        assert_eq!(high_status(&stat("Z", 0x8B)), None);
        assert_eq!(high_status(&stat("S", 137 << 8)), None);
    }

    #[test]
    fn a_dead_child_is_found() {
        let mut child = std::process::Command::new("sh").args(["-c", "exit 200"]).spawn().unwrap();
        let own = Path::new("/proc").join(std::process::id().to_string());
        while dead_with_high_status(&own) != Some((child.id(), 200)) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(dead_with_high_status(&own), None);
    }

    #[test]
    fn a_process_that_waits_is_not_stopped() {
        // Not this process, which has the dead children of other tests.
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let checked = check(&[child.id()], true, &Budget::start());
        child.kill().unwrap();
        child.wait().unwrap();
        checked.unwrap();
    }
}
