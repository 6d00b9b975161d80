//! Sandboxes that are ready, and nobody's: born, mounted, connected, their agent and services up. Making one is nearly all the
//! work of a start, and none of it depends on whom it is for.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sandcove_wire::boot::{Boot, LIBEXEC, READY, WARM_SOURCES};
use sandcove_wire::id::SandboxId;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use super::handle::{Leaving, blocking};
use super::warm::Warm;
use super::{Host, process};
use crate::spawner::{BuildRequest, Kind, Launch, Launcher, Volume};
use crate::{Blueprint, Error, Files, Mount, Result, SandboxSpec, sys};

/// How long an agent may take until it is ready.
const READY_DEADLINE: Duration = Duration::from_secs(30);
/// How long an agent that is ready may take to answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// How long a forked interpreter may take to be in place.
const ENTER_DEADLINE: Duration = Duration::from_secs(5);

/// Why one is made.
#[derive(Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// Somebody waits for this sandbox.
    For(&'a SandboxSpec),
    /// It is made ahead: it yields the processors to everybody else, and there is time for it to rehearse.
    Spare(&'a Blueprint),
}

impl<'a> Purpose<'a> {
    fn blueprint(self) -> &'a Blueprint {
        match self {
            Self::For(spec) => &spec.blueprint,
            Self::Spare(blueprint) => blueprint,
        }
    }

    fn is_spare(self) -> bool {
        matches!(self, Self::Spare(_))
    }

    fn mounts(self) -> &'a [Mount] {
        match self {
            Self::For(spec) => &spec.mounts,
            Self::Spare(_) => &[],
        }
    }

    fn files(self) -> &'a Files {
        match self {
            Self::For(spec) => &spec.files,
            Self::Spare(_) => &Files::Empty,
        }
    }

    /// What its directories are called. Files that are there already are not renamed: they are to be found whatever happens.
    fn name(self, slot: u32) -> Result<SandboxId> {
        match self {
            Self::For(SandboxSpec { id, files: Files::Own, .. }) => Ok(id.clone()),
            Self::For(_) | Self::Spare(_) => new_name(slot),
        }
    }
}

/// One of them. When this is dropped it ends by itself, but what it holds must be released.
pub(super) struct Prepared {
    /// What its directories are called until it gets an id.
    pub(super) name: SandboxId,
    /// The slot it holds.
    pub(super) slot: u32,
    /// Its PID 1.
    pub(super) pid: u32,
    spare: bool,
    agent: UnixStream,
}

impl Prepared {
    /// Makes one; on an error everything it took is given back.
    pub(super) async fn make(host: &Arc<Host>, purpose: Purpose<'_>) -> Result<Self> {
        let slot = host.slots.take()?;
        let name = purpose.name(slot)?;
        match build(host, purpose, slot, name.clone()).await {
            Ok(prepared) => Ok(prepared),
            Err(error) => {
                // What is left can only be swept later; the cause is what the caller has to know.
                if let Err(left) = host.release(&[&name], slot, purpose.files().leaving()).await {
                    tracing::error!(%name, error = &left as &dyn std::error::Error, "half-made sandbox left behind");
                }
                Err(error)
            }
        }
    }

    /// Sends its agent one message and waits until it has been acted upon. [`Error::SpawnerGone`] when it is dead.
    pub(super) async fn tell<T: Serialize>(&mut self, message: &T) -> Result<()> {
        tell(&mut self.agent, message, ANSWER_DEADLINE).await.map_err(|_| Error::SpawnerGone)
    }

    /// Whether it was made ahead.
    pub(super) fn was_spare(&self) -> bool {
        self.spare
    }

    /// Ends it and gives back what it held.
    pub(super) async fn discard(self, host: &Arc<Host>) {
        let Self { name, slot, agent, .. } = self;
        drop(agent);
        if let Err(error) = host.release(&[&name], slot, Leaving::Nothing).await {
            // The slot stays taken until a restart sweeps it.
            tracing::warn!(slot, error = &error as &dyn std::error::Error, "a spare was not cleared away");
        }
    }
}

/// Named like a sandbox, so that a later server sweeps it like one.
fn new_name(slot: u32) -> Result<SandboxId> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let name = format!("spare{}x{slot}x{number}", std::process::id());
    name.parse().map_err(|_| kernel("name a sandbox", std::io::ErrorKind::InvalidInput.into()))
}

async fn build(host: &Arc<Host>, purpose: Purpose<'_>, slot: u32, name: SandboxId) -> Result<Prepared> {
    let started = Instant::now();
    let (blueprint, spare) = (purpose.blueprint(), purpose.is_spare());
    let wants_warm = blueprint.wants_warm() && !host.pool.replaces(purpose.files(), &name, &WARM_SOURCES);
    let warm = if wants_warm { host.warm.get(&blueprint.layers) } else { None };
    let request = BuildRequest { id_base: host.addresses.id_base(slot), kind: Kind::Sandbox };
    let (launcher, pid) = host.spawner.begin(&request, warm.as_deref().map(Warm::user_namespace)).await?;
    host.cgroups.create(slot)?;
    // Everything it starts later is counted and limited.
    host.cgroups.attach(slot, pid)?;
    if spare {
        host.cgroups.yield_processors(slot, true)?;
    }
    let files = {
        let (host, name, limits, files) =
            (host.clone(), name.clone(), blueprint.limits, purpose.files().clone());
        blocking(move || {
            host.cgroups.limit(slot, &limits)?;
            Place::prepare(&host, &name, &files, limits.disk_mib)
        })
    };
    let network = async {
        host.links.create(&host.addresses.link(slot), pid, host.addresses.gateway(slot)).await?;
        Ok(match &warm {
            Some(warm) => enter(host, warm, slot, pid).await,
            None => None,
        })
    };
    let (files, zygote) = tokio::join!(files, network);
    let (files, zygote) = (files?, zygote?);
    let born = started.elapsed();

    let mut boot = Boot { zygote: zygote.is_some(), warm_up: spare, ..blueprint.boot.clone() };
    if boot.nameservers.is_empty() {
        // The firewall sends questions to the gateway on to the real resolver.
        boot.nameservers = vec![host.addresses.gateway(slot).into()];
    }
    launch(host, purpose, slot, &launcher, &files, zygote).await?;
    let launched = started.elapsed();
    let Place { mut agent, log, .. } = files;
    if let Err(error) = tell(&mut agent, &boot, READY_DEADLINE).await {
        tracing::debug!(%error, "the agent did not answer");
        let waited_ms = started.elapsed().as_millis() as u64;
        let log = super::log::tail(&log);
        return Err(match error.kind() {
            std::io::ErrorKind::TimedOut => Error::AgentSlow { waited_ms, log },
            _ => Error::AgentEnded { waited_ms, log },
        });
    }
    let ready = started.elapsed();
    tracing::debug!(%name, spare, warm = boot.zygote, ?born, ?launched, ?ready, "sandbox prepared");
    Ok(Prepared { name, slot, pid, spare, agent })
}

async fn launch(
    host: &Host,
    purpose: Purpose<'_>,
    slot: u32,
    launcher: &Launcher,
    files: &Place,
    zygote: Option<OwnedFd>,
) -> Result<()> {
    let blueprint = purpose.blueprint();
    let launch = Launch {
        hostname: blueprint.boot.hostname.clone(),
        layers: blueprint.layers.clone(),
        upper: files.upper.clone(),
        volumes: purpose.mounts().iter().filter_map(|mount| volume(host, mount)).collect(),
        libexec: host.config.libexec.clone(),
        address: Some((host.addresses.guest(slot), host.addresses.gateway(slot))),
        tmpfs_mib: (blueprint.limits.memory_mib / 2).max(16),
        kind: Kind::Sandbox,
        command: vec![format!("{LIBEXEC}/sandcove-agent")],
    };
    let mut fds = vec![&files.log_file, &files.control, &files.guest];
    fds.extend(&zygote);
    launcher.launch(&launch, &fds.into_iter().map(AsFd::as_fd).collect::<Vec<BorrowedFd<'_>>>()).await
}

/// A volume that was deleted while its sandbox had no processes is no longer seen.
fn volume(host: &Host, mount: &Mount) -> Option<Volume> {
    let source = host.pool.volumes().join(&mount.volume).join("content");
    source.exists().then(|| Volume { source, target: mount.path.clone() })
}

/// What the sandbox is handed, and where it keeps its data.
struct Place {
    upper: PathBuf,
    control: OwnedFd,
    agent: UnixStream,
    guest: OwnedFd,
    log: PathBuf,
    log_file: OwnedFd,
}

impl Place {
    fn prepare(host: &Host, name: &SandboxId, files: &Files, disk_mib: u64) -> Result<Self> {
        let upper = match files {
            Files::Empty => host.pool.create(name, disk_mib)?,
            Files::Snapshot(snapshot) => host.pool.create_from(snapshot, name, disk_mib)?,
            Files::Own => host.pool.sandbox(name),
        };
        let run_dir = host.run_dir(name);
        std::fs::create_dir(&run_dir).map_err(at("create", &run_dir))?;
        let socket = run_dir.join("control.sock");
        let control = UnixListener::bind(&socket).map_err(at("bind", &socket))?;
        let log = host.pool.agent_log(name);
        let log_file = OpenOptions::new().create(true).append(true).open(&log).map_err(at("create", &log))?;
        // The messages hold secrets, which do not belong on disk.
        let pair = || {
            let (ours, theirs) = StdUnixStream::pair()?;
            ours.set_nonblocking(true)?;
            Ok((UnixStream::from_std(ours)?, theirs))
        };
        let (agent, guest) = pair().map_err(|source| kernel("make a socket pair", source))?;
        Ok(Self {
            upper,
            control: control.into(),
            agent,
            guest: guest.into(),
            log,
            log_file: log_file.into(),
        })
    }
}

/// Forks the warm process into a sandbox that is being made, and waits until it is in place. It gets to see the sandbox's own
/// root when PID 1 changes to it: the kernel takes along everybody whose root it was, so nobody may be on the way then.
/// Without it, the sandbox starts its interpreter cold.
async fn enter(host: &Host, warm: &Warm, slot: u32, pid: u32) -> Option<OwnedFd> {
    match try_enter(host, warm, slot, pid).await {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "no warm start");
            None
        }
    }
}

async fn try_enter(host: &Host, warm: &Warm, slot: u32, pid: u32) -> Result<OwnedFd> {
    let failed = |source| kernel("enter a sandbox", source);
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

async fn tell<T: Serialize>(agent: &mut UnixStream, message: &T, patience: Duration) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let answer = async {
        agent.write_all(&line).await?;
        agent.read_u8().await
    };
    match tokio::time::timeout(patience, answer).await {
        Ok(Ok(READY)) => Ok(()),
        Ok(Ok(_)) => Err(std::io::ErrorKind::InvalidData.into()),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
    }
}

fn at(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Path { action, path, source }
}

fn kernel(action: &str, source: std::io::Error) -> Error {
    Error::Kernel { action: action.to_owned(), source }
}
