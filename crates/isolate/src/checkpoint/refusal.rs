//! What cannot be stored although CRIU does not say so: it would wait for ever, or restore something else.

use std::path::Path;

use crate::{Error, Result};

/// Functions of the kernel in which a process waits that was stopped by a signal or by a debugger before it was frozen.
const STOPPED_IN: [&str; 2] = ["do_signal_stop", "ptrace_stop"];

/// Checks the frozen processes `pids`. `waits_while_frozen` says that whoever attaches to a stopped process waits until it is thawed,
/// as with control groups of version 1. `root` is the device number of the sandbox's root, as `/proc/PID/fdinfo` has it.
pub(super) fn check(pids: &[u32], waits_while_frozen: bool, root: u64) -> Result<()> {
    for pid in pids {
        let directory = Path::new("/proc").join(pid.to_string());
        if waits_while_frozen && is_stopped(&directory) {
            return Err(refused(format!("process {pid} is stopped")));
        }
        if watches(&directory, root) {
            // CRIU looks for a watched file by the number of its inode, which overlays have more than once.
            return Err(refused(format!("process {pid} watches files with inotify")));
        }
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
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("wchan")).ok())
        .any(|function| STOPPED_IN.contains(&function.trim()))
}

fn watches(process: &Path, root: u64) -> bool {
    let descriptors = std::fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|descriptor| std::fs::read_to_string(descriptor.path()).ok())
        .any(|info| has_watch(&info, root))
}

/// Whether the description of a descriptor has a watch on the file system `root`.
fn has_watch(info: &str, root: u64) -> bool {
    let device = format!("sdev:{root:x}");
    info.lines()
        .filter(|line| line.starts_with("inotify "))
        .any(|line| line.split_whitespace().any(|field| field == device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_of_the_root_are_found() {
        let info =
            "pos:\t0\nflags:\t00\ninotify wd:1 ino:10f sdev:168 mask:100 ignored_mask:0 fhandle-bytes:2c\n";
        assert!(has_watch(info, 0x168));
        assert!(!has_watch(info, 0x16));
        assert!(!has_watch("eventfd-count: 0\n", 0x168));
    }

    #[test]
    fn this_process_is_not_stopped() {
        check(&[std::process::id()], true, 0).unwrap();
    }
}
