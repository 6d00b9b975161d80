//! The server's side of the spawner.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::message::{BuildRequest, Launch, Reply, receive, send};
use crate::{Error, Result};

/// A running spawner process. Dropping it closes the socket, which tells the spawner to leave once its sandboxes are
/// gone.
pub(crate) struct Spawner {
    socket: OwnedFd,
    child: Child,
}

impl Spawner {
    /// Starts `program __spawner <pool> <libexec>`.
    pub(crate) fn start(program: &Path, pool: &Path, libexec: &Path) -> Result<Self> {
        let failed = |source| Error::Kernel { action: "start the spawner".into(), source };
        let (ours, theirs) = pair().map_err(failed)?;
        let child = Command::new(program)
            .arg("__spawner")
            .arg(pool)
            .arg(libexec)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .spawn()
            .map_err(failed)?;
        Ok(Self { socket: ours, child })
    }

    /// Host pid of the spawner.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks for a new sandbox shell; the answer comes on the returned [`Launcher`].
    pub(crate) fn request(&self, request: &BuildRequest, parent: Option<&OwnedFd>) -> Result<Launcher> {
        let (ours, theirs) =
            pair().map_err(|source| Error::Kernel { action: "make a socket pair".into(), source })?;
        let fds: Vec<_> = parent.into_iter().chain([&theirs]).map(AsFd::as_fd).collect();
        send(&self.socket, request, &fds).map_err(|_| Error::SpawnerGone)?;
        drop(theirs);
        rustix::io::ioctl_fionbio(&ours, true)
            .map_err(|e| Error::Kernel { action: "make a socket non-blocking".into(), source: e.into() })?;
        let socket = crate::sys::watch(ours)
            .map_err(|source| Error::Kernel { action: "watch a socket".into(), source })?;
        Ok(Launcher { socket })
    }
}

/// The conversation with one builder.
pub(crate) struct Launcher {
    socket: AsyncFd<OwnedFd>,
}

impl Launcher {
    /// Waits for the shell's PID 1 and returns its host pid.
    pub(crate) async fn cloned(&self) -> Result<u32> {
        match self.reply().await? {
            Reply::Cloned { pid } => Ok(pid),
            Reply::Launched => Err(Error::SpawnerGone),
            Reply::Failed(failure) => Err(Error::Jail { step: failure.step, reason: failure.reason }),
        }
    }

    /// Lets PID 1 go on to its agent, and waits until it runs it.
    pub(crate) async fn launch(&self, launch: &Launch, fds: &[BorrowedFd<'_>]) -> Result<()> {
        send(self.socket.get_ref(), launch, fds).map_err(|_| Error::SpawnerGone)?;
        match self.reply().await? {
            Reply::Launched => Ok(()),
            Reply::Cloned { .. } => Err(Error::SpawnerGone),
            Reply::Failed(failure) => Err(Error::Jail { step: failure.step, reason: failure.reason }),
        }
    }

    async fn reply(&self) -> Result<Reply> {
        let received = self.socket.async_io(Interest::READABLE, |fd| receive::<Reply>(fd)).await;
        match received {
            Ok(Some((reply, _))) => Ok(reply),
            Ok(None) | Err(_) => Err(Error::SpawnerGone),
        }
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(Into::into)
}
