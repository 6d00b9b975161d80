//! Creating unassigned sandboxes: nearly all the work of a start, and none of it depends on the client.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sandcove_wire::boot::{Boot, LIBEXEC, WARM_SOURCES};
use sandcove_wire::id::SandboxId;
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::host::{Host, blocking};
use super::process;
use super::unassigned::{POOLED_PREFIX, UnassignedSandbox, send};
use super::warm::{WarmProcess, nonblocking_pair};
use crate::jail::{BuildRequest, JailKind, Launch, VolumeMount};
use crate::spawner::Launcher;
use crate::{Blueprint, Error, Files, Mount, Result, SandboxSpec, sys};

/// Timeout for an agent to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for a forked interpreter to enter its sandbox.
const ENTER_TIMEOUT: Duration = Duration::from_secs(5);

/// Reason why an unassigned sandbox is created.
#[derive(Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// A client waits for this sandbox.
    Start(&'a SandboxSpec),
    /// The pool is filled: the sandbox has the lowest CPU priority, and there is time for a warm-up.
    Pool(&'a Blueprint),
}

impl<'a> Purpose<'a> {
    fn blueprint(self) -> &'a Blueprint {
        match self {
            Self::Start(spec) => &spec.blueprint,
            Self::Pool(blueprint) => blueprint,
        }
    }

    fn is_pool(self) -> bool {
        matches!(self, Self::Pool(_))
    }

    fn mounts(self) -> &'a [Mount] {
        match self {
            Self::Start(spec) => &spec.mounts,
            Self::Pool(_) => &[],
        }
    }

    fn files(self) -> &'a Files {
        match self {
            Self::Start(spec) => &spec.files,
            Self::Pool(_) => &Files::Empty,
        }
    }

    /// Name of the sandbox's directories. Files that exist already keep their name, so that they are found after any
    /// failure.
    fn name(self, slot: u32) -> Result<SandboxId> {
        match self {
            Self::Start(SandboxSpec { id, files: Files::Own, .. }) => Ok(id.clone()),
            Self::Start(_) | Self::Pool(_) => new_name(slot),
        }
    }
}

/// Creates an unassigned sandbox; on an error everything is cleaned up.
pub(super) async fn prepare(host: &Arc<Host>, purpose: Purpose<'_>) -> Result<UnassignedSandbox> {
    let slot = host.slots.take()?;
    let name = purpose.name(slot)?;
    match build(host, purpose, slot, name.clone()).await {
        Ok(sandbox) => Ok(sandbox),
        Err(error) => {
            // The caller needs the cause; leftovers are removed by a sweep.
            if let Err(left) = host.release(&[&name], slot, purpose.files().kept_on_failure()).await {
                tracing::error!(%name, error = &left as &dyn std::error::Error, "failed to clean up after a failed start");
            }
            Err(error)
        }
    }
}

/// Creates a name in the form of a sandbox id, so that a later server sweeps these directories like those of a sandbox.
fn new_name(slot: u32) -> Result<SandboxId> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{POOLED_PREFIX}{}x{slot}x{number}", std::process::id());
    name.parse().map_err(|_| kernel("name a sandbox", std::io::ErrorKind::InvalidInput.into()))
}

async fn build(
    host: &Arc<Host>,
    purpose: Purpose<'_>,
    slot: u32,
    name: SandboxId,
) -> Result<UnassignedSandbox> {
    let started = Instant::now();
    let (blueprint, pooled) = (purpose.blueprint(), purpose.is_pool());
    let wants_warm = blueprint.wants_warm() && !host.pool.replaces(purpose.files(), &name, &WARM_SOURCES);
    let warm = if wants_warm { host.warm_processes.get(&blueprint.layers) } else { None };
    let request = BuildRequest { id_base: host.addresses.id_base(slot), kind: JailKind::Sandbox };
    let (launcher, pid) =
        host.spawner.begin(&request, warm.as_deref().map(WarmProcess::user_namespace)).await?;
    host.cgroups.create(slot)?;
    // Before PID 1 starts anything, so that every process is counted and limited.
    host.cgroups.attach(slot, pid)?;
    if pooled {
        host.cgroups.set_low_priority(slot, true)?;
    }
    let files = {
        let (host, name, limits, files) =
            (host.clone(), name.clone(), blueprint.limits, purpose.files().clone());
        blocking(move || {
            host.cgroups.limit(slot, &limits)?;
            SandboxFiles::create(&host, &name, &files, limits.disk_mib)
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
    let cloned = started.elapsed();

    let mut boot = Boot { zygote: zygote.is_some(), warm_up: pooled, ..blueprint.boot.clone() };
    if boot.nameservers.is_empty() {
        // The firewall forwards DNS queries from the gateway to the resolver.
        boot.nameservers = vec![host.addresses.gateway(slot).into()];
    }
    launch(host, purpose, slot, &launcher, &files, zygote).await?;
    let launched = started.elapsed();
    let SandboxFiles { mut agent, log, .. } = files;
    if let Err(error) = send(&mut agent, &boot, READY_TIMEOUT).await {
        tracing::debug!(%error, "the agent did not acknowledge the boot message");
        let waited_ms = started.elapsed().as_millis() as u64;
        let log = super::log::tail(&log);
        return Err(match error.kind() {
            std::io::ErrorKind::TimedOut => Error::AgentSlow { waited_ms, log },
            _ => Error::AgentEnded { waited_ms, log },
        });
    }
    let ready = started.elapsed();
    tracing::debug!(%name, pooled, warm = boot.zygote, ?cloned, ?launched, ?ready, "unassigned sandbox ready");
    Ok(UnassignedSandbox { name, slot, pid, pooled, agent })
}

async fn launch(
    host: &Host,
    purpose: Purpose<'_>,
    slot: u32,
    launcher: &Launcher,
    files: &SandboxFiles,
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
        kind: JailKind::Sandbox,
        command: vec![format!("{LIBEXEC}/sandcove-agent")],
    };
    let mut fds = vec![&files.log_file, &files.control, &files.guest];
    fds.extend(&zygote);
    launcher.launch(&launch, &fds.into_iter().map(AsFd::as_fd).collect::<Vec<BorrowedFd<'_>>>()).await
}

/// Mount of a volume; `None` for a volume that was deleted while its sandbox had no processes.
fn volume(host: &Host, mount: &Mount) -> Option<VolumeMount> {
    let source = host.pool.volumes().join(&mount.volume).join("content");
    source.exists().then(|| VolumeMount { source, target: mount.path.clone() })
}

/// Directories, sockets and log of a sandbox that is being created.
struct SandboxFiles {
    upper: PathBuf,
    control: OwnedFd,
    agent: UnixStream,
    guest: OwnedFd,
    log: PathBuf,
    log_file: OwnedFd,
}

impl SandboxFiles {
    fn create(host: &Host, name: &SandboxId, files: &Files, disk_mib: u64) -> Result<Self> {
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
        // A socket and not a file: the messages hold secrets, which must not be on disk.
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

/// Forks the warm process into a sandbox that is being created, and waits until the fork is in place. The fork gets the
/// sandbox's root when PID 1 pivots: the kernel moves every process that has the old root, so the fork must not be entering
/// just then. When this fails, the sandbox starts its interpreter cold.
async fn enter(host: &Host, warm: &WarmProcess, slot: u32, pid: u32) -> Option<OwnedFd> {
    match try_enter(host, warm, slot, pid).await {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to fork the warm process into a sandbox; its interpreter starts cold"
            );
            None
        }
    }
}

async fn try_enter(host: &Host, warm: &WarmProcess, slot: u32, pid: u32) -> Result<OwnedFd> {
    let failed = |source| kernel("enter a sandbox", source);
    let (socket, serving) = nonblocking_pair()?;
    let pidfd = process::open(pid).map_err(failed)?;
    warm.enter(host.cgroups.procs_files(slot), pidfd.as_fd(), &serving).map_err(failed)?;
    drop(serving);
    let socket = sys::watch(socket).map_err(failed)?;
    let mut byte = [0];
    let read = socket.async_io(Interest::READABLE, |fd| rustix::io::read(fd, &mut byte).map_err(Into::into));
    match tokio::time::timeout(ENTER_TIMEOUT, read).await {
        Ok(Ok(1)) => Ok(socket.into_inner()),
        Ok(Ok(_)) => Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
        Ok(Err(error)) => Err(failed(error)),
        Err(_) => Err(failed(std::io::ErrorKind::TimedOut.into())),
    }
}

fn at(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Path { action, path, source }
}

fn kernel(action: &str, source: std::io::Error) -> Error {
    Error::Kernel { action: action.to_owned(), source }
}
