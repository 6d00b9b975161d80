//! The one place that waits for processes. As PID 1 the daemon inherits every orphan of the sandbox and has to reap it,
//! so waiting for single children would either leave orphans or take statuses from each other. Here one loop reaps all
//! processes and reports the statuses of those that the daemon started.
//!
//! Fork and entry in the table happen under one lock, and so do reaping and signalling: a child cannot end before it is in
//! the table, and a signal cannot hit a process id that has been reaped and reused.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, oneshot};

use super::sys::{self, REPORT_LENGTH};
use super::{Exit, Launch, SpawnError, Stdio, Step};

/// Time after which processes that are to be killed are killed again, and the number of times.
const KILL_INTERVAL: Duration = Duration::from_secs(1);
const KILLS: usize = 10;

/// The processes that are reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaping {
    /// Every process, as PID 1 must.
    Everything,
    /// Processes started through the table only.
    OwnChildren,
}

/// All processes the daemon has started and not yet reaped.
#[derive(Debug)]
pub struct Children {
    reaping: Reaping,
    waiting: Mutex<HashMap<Pid, oneshot::Sender<Exit>>>,
    /// Notified after each round of reaping.
    reaped: Notify,
}

/// A running program.
#[derive(Debug)]
pub struct Child {
    /// Process id.
    pub pid: Pid,
    /// Receives how the process ends.
    pub exit: oneshot::Receiver<Exit>,
}

impl Children {
    /// Makes an empty table and starts the task that reaps for it. Must be called within a runtime.
    pub fn start(reaping: Reaping) -> io::Result<Arc<Self>> {
        let children = Arc::new(Self { reaping, waiting: Mutex::default(), reaped: Notify::new() });
        let mut deaths = signal(SignalKind::child())?;
        let reaper = Arc::clone(&children);
        tokio::spawn(async move {
            loop {
                reaper.reap();
                reaper.reaped.notify_waiters();
                // Signals merge, so each one means that any number of children may have ended.
                if deaths.recv().await.is_none() {
                    return;
                }
            }
        });
        Ok(children)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Pid, oneshot::Sender<Exit>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts `launch` and waits until the program runs or has failed to start.
    pub async fn spawn(&self, launch: &Launch, stdio: Stdio) -> Result<Child, SpawnError> {
        let (report, their_report) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|e| SpawnError::Fork(e.into()))?;
        let (pid, exit) = {
            let mut waiting = self.waiting();
            let pid = sys::fork(launch, &stdio, &their_report).map_err(SpawnError::Fork)?;
            let (ended, exit) = oneshot::channel();
            waiting.insert(pid, ended);
            (pid, exit)
        };
        // Our copy must be closed, or end of file never comes.
        drop((their_report, stdio));
        match read_report(report).await.map_err(SpawnError::Fork)? {
            None => Ok(Child { pid, exit }),
            Some((step, source)) => Err(SpawnError::Setup { step, source }),
        }
    }

    /// Sends `signal` to `pid`, if that has not been reaped. Returns whether it was sent.
    pub fn signal(&self, pid: Pid, signal: Signal) -> io::Result<bool> {
        let waiting = self.waiting();
        if !waiting.contains_key(&pid) {
            return Ok(false);
        }
        rustix::process::kill_process(pid, signal)?;
        Ok(true)
    }

    /// Sends `signal` to all processes in the table.
    pub fn signal_all(&self, signal: Signal) {
        for pid in self.waiting().keys() {
            // A process that has ended but is not reaped yet ignores it.
            let _ = rustix::process::kill_process(*pid, signal);
        }
    }

    /// Sends `signal` to all processes of the sandbox, orphans included; to none when this is no sandbox.
    pub fn signal_everything(&self, signal: Signal) {
        if self.reaping == Reaping::Everything {
            sys::signal_everything(signal);
        }
    }

    /// Kills all processes of the sandbox, orphans included, and waits until they are gone. Does nothing when this is no sandbox.
    pub async fn kill_everything(&self) {
        if self.reaping != Reaping::Everything {
            return;
        }
        for _ in 0..KILLS {
            sys::signal_everything(Signal::KILL);
            if tokio::time::timeout(KILL_INTERVAL, self.all_gone()).await.is_ok() {
                return;
            }
        }
        tracing::warn!("processes are left although they were killed");
    }

    /// Waits until no process is left, orphans included.
    pub async fn all_gone(&self) {
        loop {
            let reaped = self.reaped.notified();
            let left = rustix::process::waitid(
                WaitId::All,
                WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT,
            );
            if left.is_err_and(|error| error == rustix::io::Errno::CHILD) {
                return;
            }
            reaped.await;
        }
    }

    fn reap(&self) {
        let mut waiting = self.waiting();
        match self.reaping {
            // Ends with "none has ended" or with "no children".
            Reaping::Everything => {
                while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
                    if let Some(ended) = waiting.remove(&pid) {
                        // Nothing listens when the start itself failed.
                        let _ = ended.send(Exit::from_status(status));
                    }
                }
            }
            Reaping::OwnChildren => {
                let pids: Vec<Pid> = waiting.keys().copied().collect();
                for pid in pids {
                    if let Ok(Some((_, status))) = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG)
                        && let Some(ended) = waiting.remove(&pid)
                    {
                        let _ = ended.send(Exit::from_status(status));
                    }
                }
            }
        }
    }
}

/// Reads the report of a new process; end of file means that the program started.
async fn read_report(report: OwnedFd) -> io::Result<Option<(Step, io::Error)>> {
    let mut report = pipe::Receiver::from_owned_fd(report)?;
    let mut bytes = [0; REPORT_LENGTH];
    match report.read_exact(&mut bytes).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
        Ok(_) => {
            let [step, number @ ..] = bytes;
            let source = io::Error::from_raw_os_error(i32::from_ne_bytes(number));
            Ok(Step::from_byte(step).map(|step| (step, source)))
        }
    }
}
