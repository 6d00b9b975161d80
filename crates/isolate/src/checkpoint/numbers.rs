//! Numbers of processes and threads: those of the host, and those inside of the sandbox, by which images name them.

use std::collections::BTreeMap;
use std::path::Path;

/// Host numbers of the processes `pids`, by their numbers inside. Those that have ended meanwhile are left out.
pub(super) fn processes(pids: &[u32]) -> BTreeMap<u32, u32> {
    pids.iter().filter_map(|pid| of_status(format!("/proc/{pid}/status"))).collect()
}

/// Host numbers of the threads of `pids`, by their numbers inside. Those that have ended meanwhile are left out.
pub(super) fn threads(pids: &[u32]) -> BTreeMap<u32, u32> {
    pids.iter()
        .flat_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten())
        .filter_map(|thread| of_status(thread.path().join("status")))
        .collect()
}

/// A process as somebody inside knows it, by its number on the host: `process 12 (java)`.
pub(super) fn named(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let inside = numbers(&status).map_or(pid, |(inside, _)| inside);
    match status.lines().find_map(|line| line.strip_prefix("Name:")) {
        Some(name) => format!("process {inside} ({})", name.trim().escape_debug()),
        None => format!("process {inside}"),
    }
}

fn of_status(path: impl AsRef<Path>) -> Option<(u32, u32)> {
    numbers(&std::fs::read_to_string(path).ok()?)
}

/// Innermost and outermost number of the thread of this `status`.
fn numbers(status: &str) -> Option<(u32, u32)> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let mut numbers = numbers.split_whitespace();
    let outer = numbers.next()?;
    let inner = numbers.next_back().unwrap_or(outer);
    Some((inner.parse().ok()?, outer.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_innermost_and_the_outermost_namespace() {
        assert_eq!(numbers("Name:\tx\nNSpid:\t700\t31\t4\n"), Some((4, 700)));
        assert_eq!(numbers("NSpid:\t700\n"), Some((700, 700)));
        assert_eq!(numbers("Name:\tx\n"), None);
    }
}
