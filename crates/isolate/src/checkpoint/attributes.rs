//! Attributes of threads that CRIU does not store: read before a dump, and set again on the restored threads before they run.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::numbers::threads;
use crate::sys;

/// File with the attributes in the directory of the images.
const FILE: &str = "attributes.json";
/// Attributes that are files of `/proc/TID`.
const FILES: [&str; 3] = ["timerslack_ns", "coredump_filter", "oom_score_adj"];

/// Attributes of a thread.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Thread {
    /// Numbers of the processors that it may run on, unless they are those of this server: another host may have others.
    processors: Option<Vec<usize>>,
    /// I/O priority, as ioprio_get(2) has it.
    io_priority: i32,
    /// Contents of [`FILES`], by name.
    files: BTreeMap<String, String>,
}

/// Writes the attributes of all threads of the processes `pids` into the directory of the images.
pub(super) fn store(pids: &[u32], directory: &Path) -> io::Result<()> {
    let mut found = BTreeMap::new();
    for (inside, thread) in threads(pids) {
        // A dead thread has none, and is restored as one.
        if let Ok(attributes) = read(thread) {
            found.insert(inside, attributes);
        }
    }
    std::fs::write(directory.join(FILE), serde_json::to_vec(&found)?)
}

/// Gives the threads of the restored processes `pids` the attributes that are in the directory `generation`. One of an earlier version has none.
pub(crate) fn restore(pids: &[u32], generation: &Path) -> io::Result<()> {
    let stored: BTreeMap<u32, Thread> = super::stored(generation, FILE)?;
    for (inside, thread) in threads(pids) {
        if let (Some(wanted), Ok(now)) = (stored.get(&inside), read(thread)) {
            change(thread, &now, wanted)?;
        }
    }
    Ok(())
}

fn change(thread: u32, now: &Thread, wanted: &Thread) -> io::Result<()> {
    if now.io_priority != wanted.io_priority {
        sys::set_io_priority(thread, wanted.io_priority)?;
    }
    if let Some(wanted) = wanted.processors.as_ref().filter(|_| now.processors != wanted.processors) {
        let mut processors = CpuSet::new();
        wanted.iter().for_each(|number| processors.set(*number));
        match sched_setaffinity(pid(thread), &processors) {
            // This host has none of them.
            Err(Errno::INVAL) => {}
            set => set?,
        }
    }
    for (name, content) in &wanted.files {
        if now.files.get(name) != Some(content) {
            std::fs::write(directory(thread).join(name), content)?;
        }
    }
    Ok(())
}

fn read(thread: u32) -> io::Result<Thread> {
    let processors = processors(pid(thread))?;
    let directory = directory(thread);
    let content = |name: &str| {
        let text = std::fs::read_to_string(directory.join(name))?;
        let text = text.trim();
        // The kernel shows this one in hexadecimal digits, and takes numbers of C.
        Ok::<_, io::Error>(if name == "coredump_filter" { format!("0x{text}") } else { text.to_owned() })
    };
    Ok(Thread {
        processors: (processors != self::processors(None)?).then_some(processors),
        io_priority: sys::io_priority(thread)?,
        files: FILES
            .into_iter()
            .map(|name| Ok((name.to_owned(), content(name)?)))
            .collect::<io::Result<_>>()?,
    })
}

/// Numbers of the processors that a thread may run on; `None` is this one.
fn processors(thread: Option<Pid>) -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(thread)?;
    Ok((0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number)).collect())
}

fn pid(thread: u32) -> Option<Pid> {
    i32::try_from(thread).ok().and_then(Pid::from_raw)
}

fn directory(thread: u32) -> PathBuf {
    Path::new("/proc").join(thread.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_this_process_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let own = [std::process::id()];
        store(&own, directory.path()).unwrap();
        let before = read(own[0]).unwrap();
        std::fs::write("/proc/self/coredump_filter", "0x11").unwrap();
        assert_ne!(read(own[0]).unwrap(), before);
        restore(&own, directory.path()).unwrap();
        assert_eq!(read(own[0]).unwrap(), before);
    }
}
