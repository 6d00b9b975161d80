//! Shells: jails that have been born and have their network, and wait for a sandbox to become. Making one is most of the
//! work of a start, and the part that waits for locks of the whole kernel (network interfaces come and go one at a time);
//! so a few are made ahead. One is made on the spot when none is left.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::io::Interest;
use tokio::sync::Notify;

use super::warm::Warm;
use super::{Host, process};
use crate::spawner::{BuildRequest, Kind, Launch, Launcher};
use crate::{Error, Result, sys};

/// How long after a start the spares are looked at: the new sandbox gets the processors first.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a forked interpreter may take to be in place.
const ENTER_DEADLINE: Duration = Duration::from_secs(5);
/// How long to wait when a spare cannot be made.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// One shell. It dies by itself when this is dropped, but its slot must be released.
pub(super) struct Shell {
    /// The slot it holds.
    pub(super) slot: u32,
    /// Its future PID 1.
    pub(super) pid: u32,
    /// Socket to the interpreter that has been forked into it already.
    pub(super) zygote: Option<OwnedFd>,
    launcher: Launcher,
}

impl Shell {
    /// Makes a shell; on an error everything it took is given back.
    pub(super) async fn make(host: &Arc<Host>, warm: Option<Arc<Warm>>) -> Result<Self> {
        let slot = host.slots.take()?;
        match Self::build(host, slot, warm).await {
            Ok(shell) => Ok(shell),
            Err(error) => {
                host.discard(slot).await;
                Err(error)
            }
        }
    }

    async fn build(host: &Arc<Host>, slot: u32, warm: Option<Arc<Warm>>) -> Result<Self> {
        let request = BuildRequest { id_base: host.addresses.id_base(slot), kind: Kind::Sandbox };
        let launcher = host.spawner.request(&request, warm.as_deref().map(Warm::user_namespace))?;
        let pid = launcher.cloned().await?;
        host.cgroups.create(slot)?;
        // Everything it starts later is counted and limited.
        host.cgroups.attach(slot, pid)?;
        host.links.create(&host.addresses.link(slot), pid, host.addresses.gateway(slot)).await?;
        let zygote = match warm {
            Some(warm) => match enter(host, &warm, slot, pid).await {
                Ok(socket) => Some(socket),
                Err(error) => {
                    // The sandbox starts its interpreter cold.
                    tracing::warn!(error = &error as &dyn std::error::Error, "no warm start");
                    None
                }
            },
            None => None,
        };
        Ok(Self { slot, pid, zygote, launcher })
    }

    /// Lets it become a sandbox.
    pub(super) async fn launch(&self, launch: &Launch, fds: &[BorrowedFd<'_>]) -> Result<()> {
        self.launcher.launch(launch, fds).await
    }
}

/// Forks the warm process into a shell, and waits until it is in place. It gets to see the sandbox's own root when PID 1
/// changes to it: the kernel takes along everybody whose root it was, so nobody may be on the way then.
async fn enter(host: &Host, warm: &Warm, slot: u32, pid: u32) -> Result<OwnedFd> {
    let failed = |source| Error::Kernel { action: "enter a shell".into(), source };
    let (socket, serving) = super::warm::seqpacket()?;
    let pidfd = process::open(pid).map_err(failed)?;
    warm.enter(host, slot, pidfd.as_fd(), &serving).map_err(failed)?;
    drop(serving);
    let socket = sys::watch(socket).map_err(failed)?;
    let mut byte = [0];
    let read = socket.async_io(Interest::READABLE, |fd| rustix::io::read(fd, &mut byte).map_err(Into::into));
    match tokio::time::timeout(ENTER_DEADLINE, read).await {
        Ok(Ok(1)) => Ok(socket.into_inner()),
        Ok(Ok(_)) => Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
        Ok(Err(error)) => Err(failed(error)),
        Err(_) => Err(failed(std::io::ErrorKind::TimedOut.into())),
    }
}

/// Spare shells, by the warm process they belong to.
pub(super) struct Spares {
    target: usize,
    ready: Mutex<HashMap<Option<usize>, Vec<Shell>>>,
    taken: Notify,
}

impl Spares {
    pub(super) fn new(target: usize) -> Self {
        Self { target, ready: Mutex::default(), taken: Notify::new() }
    }

    /// A spare of `warm`, or none.
    pub(super) fn take(&self, warm: Option<&Arc<Warm>>) -> Option<Shell> {
        let shell = self.lock().get_mut(&key(warm))?.pop();
        self.taken.notify_one();
        shell
    }

    /// Keeps the spares up for as long as the host is there.
    pub(super) async fn keep(host: Weak<Host>) {
        loop {
            let Some(host) = host.upgrade() else { return };
            let pause = match host.spares.fill(&host).await {
                Ok(()) => {
                    let spares = &host.spares.taken;
                    // A warm process that came or went is noticed at the next start, or after a while.
                    let _ = tokio::time::timeout(Duration::from_secs(1), spares.notified()).await;
                    PAUSE
                }
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "no spare shell");
                    PAUSE_AFTER_FAILURE
                }
            };
            drop(host);
            tokio::time::sleep(pause).await;
        }
    }

    async fn fill(&self, host: &Arc<Host>) -> Result<()> {
        let parents: Vec<Option<Arc<Warm>>> =
            std::iter::once(None).chain(host.warm.all().into_iter().map(Some)).collect();
        let known: Vec<_> = parents.iter().map(|parent| key(parent.as_ref())).collect();
        let orphans: Vec<Shell> = {
            let mut ready = self.lock();
            let gone: Vec<_> = ready.keys().filter(|key| !known.contains(key)).copied().collect();
            gone.into_iter().filter_map(|key| ready.remove(&key)).flatten().collect()
        };
        for shell in orphans {
            let slot = shell.slot;
            drop(shell);
            host.discard(slot).await;
        }
        for parent in parents {
            while self.lock().get(&key(parent.as_ref())).map_or(0, Vec::len) < self.target {
                let shell = Shell::make(host, parent.clone()).await?;
                self.lock().entry(key(parent.as_ref())).or_default().push(shell);
            }
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Option<usize>, Vec<Shell>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(warm: Option<&Arc<Warm>>) -> Option<usize> {
    // The address is that of a live process as long as a spare holds on to it.
    warm.map(|warm| Arc::as_ptr(warm) as usize)
}
