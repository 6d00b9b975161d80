//! The server's side of the spawner: starting it, replacing a dead one, requesting jails.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::greeting::Greeting;
use crate::jail::{BuildRequest, Failure, Launch, Parent, Proceed, Reply};
use crate::packet::{pair, receive, send};
use crate::{Error, Result};

/// Timeout for a spawner to become ready.
const READY_TIMEOUT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
/// Timeout for a spawner without sandboxes to exit.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of times that a jail is requested while spawners die.
const ATTEMPTS: u32 = 20;
/// Pause before the next attempt, if the spawner was not replaced.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(10);

/// Arguments of a spawner. All paths are absolute, because it starts in the root directory.
#[derive(Debug, Clone)]
pub(crate) struct SpawnerConfig {
    /// Path of the `sandcove` program.
    pub program: PathBuf,
    /// Directory of the storage pool.
    pub pool: PathBuf,
    /// Directories of the guest programs, one for each version.
    pub programs: Vec<PathBuf>,
    /// Directory of CRIU, if this host has it.
    pub criu: Option<PathBuf>,
    /// Whether the kernel logs the system calls that sandboxes are refused.
    pub log_refused_calls: bool,
}

/// A spawner; one that was killed is replaced at the next request. Dropping this closes the socket, upon which the spawner
/// exits after its last sandbox has ended.
pub(crate) struct Spawner {
    config: SpawnerConfig,
    process: Mutex<Process>,
}

/// A spawner process that is ready.
struct Process {
    socket: OwnedFd,
    child: Child,
}

impl Process {
    /// Starts `program __spawner <pool> <programs>...` and waits until it is ready.
    fn start(config: &SpawnerConfig) -> Result<Self> {
        let failed = |source| Error::Kernel { action: "start the spawner".into(), source };
        let (ours, theirs) = pair().map_err(failed)?;
        let mut child = Command::new(&config.program)
            .arg("__spawner")
            .arg(&config.pool)
            .args(&config.programs)
            .args(config.criu.iter().flat_map(|criu| [OsStr::new("--criu"), criu.as_os_str()]))
            .args(config.log_refused_calls.then_some("--log-refused-calls"))
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .spawn()
            .map_err(failed)?;
        match greeting(&ours).map_err(failed) {
            Ok(Greeting::Ready) => Ok(Self { socket: ours, child }),
            outcome => {
                let _ = child.kill();
                let _ = child.wait();
                match outcome {
                    Ok(Greeting::Failed(failure)) => Err(Error::Spawner(failure.to_string())),
                    Ok(Greeting::Ready) => Err(Error::ProcessGone),
                    Err(error) => Err(error),
                }
            }
        }
    }

    fn request(&self, request: &BuildRequest, parent: Option<&Parent>) -> Result<Launcher> {
        let (ours, theirs) =
            pair().map_err(|source| Error::Kernel { action: "make a socket pair".into(), source })?;
        let parent = parent.map(|parent| [&parent.users, &parent.processes]);
        let fds: Vec<_> = parent.into_iter().flatten().chain([&theirs]).map(AsFd::as_fd).collect();
        send(&self.socket, request, &fds).map_err(|_| Error::ProcessGone)?;
        drop(theirs);
        rustix::io::ioctl_fionbio(&ours, true)
            .map_err(|e| Error::Kernel { action: "make a socket non-blocking".into(), source: e.into() })?;
        let socket = crate::sys::watch(ours)
            .map_err(|source| Error::Kernel { action: "watch a socket".into(), source })?;
        Ok(Launcher { socket })
    }
}

fn greeting(socket: &OwnedFd) -> io::Result<Greeting> {
    if poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&READY_TIMEOUT))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    match receive(socket)? {
        Some((greeting, _)) => Ok(greeting),
        None => Err(io::Error::other("it ended before it was ready")),
    }
}

impl Spawner {
    /// Starts a spawner and waits until it is ready.
    pub(crate) fn start(config: SpawnerConfig) -> Result<Self> {
        let process = Mutex::new(Process::start(&config)?);
        Ok(Self { config, process })
    }

    /// Asks the spawner to exit and waits for it; a spawner without sandboxes exits at once. Until then the pool is in use.
    pub(crate) fn end(&self) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = rustix::net::shutdown(&process.socket, rustix::net::Shutdown::Both);
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(process.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Host pid of the spawner.
    pub(crate) fn pid(&self) -> u32 {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).child.id()
    }

    /// Requests a jail, in the namespaces of `parent` if there is one, and waits for its PID 1; returns the host pid. A spawner
    /// that turns out to be dead is replaced, and the jail requested again.
    pub(crate) async fn begin(
        &self,
        request: &BuildRequest,
        parent: Option<&Parent>,
    ) -> Result<(Launcher, u32)> {
        let mut attempt = 1;
        loop {
            let (spawner, requested) = self.request(request, parent);
            let begun = match requested {
                Ok(launcher) => launcher.cloned().await.map(|pid| (launcher, pid)),
                Err(error) => Err(error),
            };
            if !matches!(begun, Err(Error::ProcessGone)) || attempt == ATTEMPTS {
                return begun;
            }
            attempt += 1;
            if !self.replace_if_dead(spawner)? {
                // A process that is being killed closes its sockets one after the other, and ends after the last.
                tokio::time::sleep(ATTEMPT_PAUSE).await;
            }
        }
    }

    /// Replaces the spawner with this host pid if it was killed; returns whether there is another now. Sandboxes of a killed
    /// spawner become children of the host's init.
    fn replace_if_dead(&self, spawner: u32) -> Result<bool> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if process.child.id() != spawner {
            // For another request, which failed at the same time.
            return Ok(true);
        }
        if matches!(process.child.try_wait(), Ok(None)) {
            return Ok(false);
        }
        tracing::warn!(pid = spawner, "the spawner has died and is restarted");
        *process = Process::start(&self.config)?;
        Ok(true)
    }

    /// Requests a jail of the spawner, whose host pid is returned, too; replies arrive at the [`Launcher`].
    fn request(&self, request: &BuildRequest, parent: Option<&Parent>) -> (u32, Result<Launcher>) {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        (process.child.id(), process.request(request, parent))
    }
}

/// Connection to one builder.
pub(crate) struct Launcher {
    socket: AsyncFd<OwnedFd>,
}

impl Launcher {
    /// Waits until PID 1 is cloned, and returns its host pid.
    async fn cloned(&self) -> Result<u32> {
        match self.reply().await? {
            Reply::Cloned { pid } => Ok(pid),
            other => Err(unexpected(other)),
        }
    }

    /// Sends the launch order and waits until PID 1 has executed its program.
    pub(crate) async fn launch(&self, launch: &Launch, fds: &[BorrowedFd<'_>]) -> Result<()> {
        send(self.socket.get_ref(), launch, fds).map_err(|_| Error::ProcessGone)?;
        self.launched().await
    }

    /// Has the builder of a restore, which was begun and is in the sandbox's control group, restore the processes with the log `log`.
    /// Waits until their namespaces exist, and returns the host pid of PID 1.
    pub(crate) async fn restore(&self, log: BorrowedFd<'_>) -> Result<u32> {
        self.proceed(&[log])?;
        self.cloned().await
    }

    /// Has the builder of a restore go on when the network exists, and waits until the processes are restored. They do not run yet.
    pub(crate) async fn finish_restore(&self) -> Result<()> {
        self.proceed(&[])?;
        match self.reply().await? {
            Reply::Restored => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Has the restored processes run.
    pub(crate) async fn run_restored(&self) -> Result<()> {
        self.proceed(&[])?;
        self.launched().await
    }

    fn proceed(&self, fds: &[BorrowedFd<'_>]) -> Result<()> {
        send(self.socket.get_ref(), &Proceed, fds).map_err(|_| Error::ProcessGone)
    }

    async fn launched(&self) -> Result<()> {
        match self.reply().await? {
            Reply::Launched => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    async fn reply(&self) -> Result<Reply> {
        let received = self.socket.async_io(Interest::READABLE, |fd| receive::<Reply>(fd)).await;
        match received {
            Ok(Some((reply, _))) => Ok(reply),
            Ok(None) | Err(_) => Err(Error::ProcessGone),
        }
    }
}

/// The error for a reply that is not the expected one.
fn unexpected(reply: Reply) -> Error {
    match reply {
        Reply::Failed(Failure { step, reason }) => Error::Jail { step, reason },
        Reply::Cloned { .. } | Reply::Restored | Reply::Launched => Error::ProcessGone,
    }
}
