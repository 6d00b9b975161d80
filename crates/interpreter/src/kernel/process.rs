//! The process of a kernel: starting it, signalling it, and noticing its death.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::unix::AsyncFd;
use tokio::process::Command;
use tokio::sync::oneshot;

use super::ending::Ending;
use super::error::StartError;
use super::link::OutputEnds;
use super::sys;

/// A started program of a kernel.
pub struct Spawned {
    /// Process id of the program.
    pub pid: i32,
    /// Source of the exit status of the program.
    pub ending: Ending,
}

/// Starts the program of a kernel in `directory`, if that exists, as leader of a process group.
///
/// # Errors
/// If the program cannot be run.
pub fn spawn(
    mut command: Command,
    program: &str,
    directory: &Path,
    ends: OutputEnds,
) -> Result<Spawned, StartError> {
    let directory = if directory.is_dir() { directory.to_path_buf() } else { PathBuf::from("/") };
    let mut process = command
        .current_dir(directory)
        .stdout(Stdio::from(ends.stdout))
        .stderr(Stdio::from(ends.stderr))
        // Signals go to a kernel with all it has started.
        .process_group(0)
        .spawn()
        .map_err(|source| StartError::Spawn { program: program.to_owned(), source })?;
    let pid = process.id().and_then(|pid| i32::try_from(pid).ok());
    let (sender, status) = oneshot::channel();
    tokio::spawn(async move {
        // The child's death is noticed through a pidfd, which does not have its status.
        if let Ok(status) = process.wait().await {
            let _ = sender.send(status);
        }
    });
    let pid = pid.ok_or_else(|| StartError::Ended(format!("`{program}` has ended at once")))?;
    Ok(Spawned { pid, ending: Ending::Child(status) })
}

/// The process of a kernel, which leads a group of its own and need not be a child of ours.
#[derive(Debug)]
pub(super) struct Process {
    pid: Pid,
    handle: AsyncFd<OwnedFd>,
}

impl Process {
    pub(super) fn open(pid: i32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let handle = sys::watch(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)?;
        Ok(Self { pid, handle })
    }

    pub(super) fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    pub(super) async fn ended(&self) {
        // An error would mean the runtime is shutting down; nobody needs to know about a death then.
        if self.handle.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Signals the process group, unless its leader is dead: the process id may belong to another process by now.
    pub(super) fn signal(&self, signal: Signal) {
        let mut state = [PollFd::new(&self.handle, PollFlags::IN)];
        if matches!(rustix::event::poll(&mut state, Some(&Timespec::default())), Ok(0)) {
            let _ = rustix::process::kill_process_group(self.pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}
