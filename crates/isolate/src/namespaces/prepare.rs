//! Creating unassigned sandboxes: nearly all the work of a start, and for sandboxes of the pool, none of it depends on the client.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use sandcove_wire::boot::{Boot, CONTROL_NAME, LIBEXEC};
use sandcove_wire::id::SandboxId;
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::host::{Host, blocking};
use super::process;
use super::unassigned::{Agent, POOLED_PREFIX, UnassignedSandbox, send};
use super::warm::{WarmProcess, nonblocking_pair};
use crate::jail::{BuildRequest, JailKind, Launch, VolumeMount};
use crate::spawner::Launcher;
use crate::{Blueprint, Error, Files, Mount, Result, SandboxSpec, packet, sys};

/// Timeout for an agent to become ready, beside the time that ready commands may take.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval and number of checks whether an agent that has closed its socket has ended.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(5);
const MAX_END_CHECKS: u32 = 200;
/// Timeout for a forked interpreter to enter its sandbox.
const ENTER_TIMEOUT: Duration = Duration::from_secs(5);

/// Reason why an unassigned sandbox is created.
#[derive(Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// A client waits for this sandbox.
    Start(&'a SandboxSpec),
    /// The pool is filled: the sandbox has the lowest CPU priority, and there is time for a warm-up.
    Pool(&'a Blueprint),
    /// Like `Pool`, but a build of a template waits for the sandbox, which shows that the start command gets ready: until then it has
    /// the usual priority.
    Proof(&'a Blueprint),
}

impl<'a> Purpose<'a> {
    fn blueprint(self) -> &'a Blueprint {
        match self {
            Self::Start(spec) => &spec.blueprint,
            Self::Pool(blueprint) | Self::Proof(blueprint) => blueprint,
        }
    }

    fn is_pool(self) -> bool {
        matches!(self, Self::Pool(_) | Self::Proof(_))
    }

    fn mounts(self) -> &'a [Mount] {
        match self {
            Self::Start(spec) => &spec.mounts,
            Self::Pool(_) | Self::Proof(_) => &[],
        }
    }

    fn files(self) -> &'a Files {
        match self {
            Self::Start(spec) => &spec.files,
            Self::Pool(_) | Self::Proof(_) => &Files::Empty,
        }
    }

    /// Name of the sandbox's directories. Files that exist already keep their name, so that they are found after any
    /// failure.
    fn name(self, slot: u32) -> Result<SandboxId> {
        match self {
            Self::Start(SandboxSpec { id, files: Files::Own, .. }) => Ok(id.clone()),
            Self::Start(_) | Self::Pool(_) | Self::Proof(_) => new_name(slot),
        }
    }
}

/// Creates an unassigned sandbox, which writes to `log` if the caller wants to read along; on an error everything is cleaned up.
pub(super) async fn prepare(
    host: &Arc<Host>,
    purpose: Purpose<'_>,
    log: Option<&File>,
) -> Result<UnassignedSandbox> {
    let slot = host.slots.take()?;
    let name = purpose.name(slot)?;
    match build(host, purpose, slot, name.clone(), log).await {
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
pub(super) fn new_name(slot: u32) -> Result<SandboxId> {
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
    log: Option<&File>,
) -> Result<UnassignedSandbox> {
    let started = Instant::now();
    let (blueprint, pooled) = (purpose.blueprint(), purpose.is_pool());
    let wants_warm =
        blueprint.wants_warm() && !host.pool.replaces(purpose.files(), &name, &blueprint.warm_sources());
    let (warm, raised) = match purpose {
        _ if !wants_warm => (None, None),
        Purpose::Start(_) => host.warm_processes.for_client(&blueprint.layers, &host.cgroups).await.unzip(),
        Purpose::Pool(_) | Purpose::Proof(_) => (host.warm_processes.get(&blueprint.layers), None),
    };
    let (launcher, pid, warm) = begin(host, slot, warm).await?;
    host.cgroups.create(slot)?;
    // Before PID 1 starts anything, so that every process is counted and limited.
    host.cgroups.attach(slot, pid)?;
    if matches!(purpose, Purpose::Pool(_)) {
        host.cgroups.set_low_priority(slot, true)?;
    }
    let files = {
        let (host, name, limits, files) =
            (host.clone(), name.clone(), blueprint.limits, purpose.files().clone());
        let top = blueprint.layers.first().cloned();
        let log = log.map_or_else(super::log::create, File::try_clone);
        let log = log.map_err(|source| kernel("create a log", source))?;
        blocking(move || {
            host.cgroups.limit(slot, &limits)?;
            SandboxFiles::create(&host, &name, &files, top.as_deref(), limits.disk_mib, log)
        })
    };
    let (link, gateway) = (host.addresses.link(slot), host.addresses.gateway(slot));
    let sockets = Sockets::create(host, pid, warm.is_some());
    let (files, network) = tokio::join!(files, host.links.create(&link, pid, gateway));
    let files = files?;
    network?;
    let Sockets { control, boot: mut boot_socket, agent_boot, zygote } = sockets.await?;
    let (zygote, served) = zygote.unzip();
    let cloned = started.elapsed();

    let mut boot = Boot { zygote: warm.is_some(), warm_up: pooled, ..blueprint.boot.clone() };
    if boot.nameservers.is_empty() {
        // The firewall forwards DNS queries from the gateway to the resolver.
        boot.nameservers = vec![host.addresses.gateway(slot).into()];
    }
    let SandboxFiles { log, upper } = files;
    {
        let mut fds = vec![log.as_fd(), control.as_fd(), agent_boot.as_fd()];
        fds.extend(zygote.as_ref().map(AsFd::as_fd));
        launcher.launch(&launch(host, purpose, slot, upper), &fds).await?;
    }
    let launched = started.elapsed();
    // The agent has copies of these: with ours open too, the sockets would not end with the agent.
    drop((control, agent_boot, zygote));
    let entered = async {
        if let (Some(warm), Some(served)) = (&warm, served) {
            enter(host, warm, slot, pid, served).await;
        }
    };
    let timeout = READY_TIMEOUT.saturating_add(boot.ready_commands_time());
    let (booted, ()) = tokio::join!(send(&mut boot_socket, &boot, timeout), entered);
    drop(raised);
    if let Err(error) = booted {
        tracing::debug!(%error, "the agent did not acknowledge the boot message");
        let waited_ms = started.elapsed().as_millis() as u64;
        if error.kind() != std::io::ErrorKind::TimedOut {
            wait_for_end(pid).await;
        }
        let log = super::log::tail(&log);
        return Err(match error.kind() {
            std::io::ErrorKind::TimedOut => Error::AgentSlow { waited_ms, log },
            _ => Error::AgentEnded { waited_ms, log },
        });
    }
    if matches!(purpose, Purpose::Proof(_)) {
        host.cgroups.set_low_priority(slot, true)?;
    }
    let ready = started.elapsed();
    tracing::debug!(%name, pooled, warm = boot.zygote, ?cloned, ?launched, ?ready, "unassigned sandbox ready");
    Ok(UnassignedSandbox { name, slot, pid, pooled, agent: Agent::Booted(boot_socket) })
}

/// Waits for an agent that has closed its socket to end: the last line of its log says why. An agent that goes on all the same is
/// not waited for long.
async fn wait_for_end(pid: u32) {
    for _ in 0..MAX_END_CHECKS {
        if process::start_ticks(pid).is_err() {
            return;
        }
        tokio::time::sleep(END_CHECK_INTERVAL).await;
    }
}

fn launch(host: &Host, purpose: Purpose<'_>, slot: u32, upper: PathBuf) -> Launch {
    let blueprint = purpose.blueprint();
    Launch {
        hostname: blueprint.boot.hostname.clone(),
        layers: blueprint.layers.clone(),
        upper,
        volumes: purpose.mounts().iter().filter_map(|mount| volume(host, mount)).collect(),
        address: Some((host.addresses.guest(slot), host.addresses.gateway(slot))),
        programs: host.programs.current(),
        tmpfs_mib: (blueprint.limits.memory_mib / 2).max(16),
        kind: JailKind::Sandbox,
        command: vec![format!("{LIBEXEC}/sandcove-agent")],
        env: BTreeMap::new(),
        directory: None,
    }
}

/// File systems and network of a sandbox that is restored in `slot`, with the version `programs` of the guest programs.
pub(super) fn restored_launch(host: &Host, spec: &SandboxSpec, slot: u32, programs: String) -> Launch {
    Launch { programs, ..launch(host, Purpose::Start(spec), slot, host.pool.sandbox(&spec.id)) }
}

/// Mount of a volume; `None` for a volume that was deleted while its sandbox had no processes.
fn volume(host: &Host, mount: &Mount) -> Option<VolumeMount> {
    let source = host.pool.volumes().join(&mount.volume).join("content");
    source.exists().then(|| VolumeMount { source, target: mount.path.clone() })
}

/// Directories and log of a sandbox that is being created.
struct SandboxFiles {
    upper: PathBuf,
    log: File,
}

impl SandboxFiles {
    fn create(
        host: &Host,
        name: &SandboxId,
        files: &Files,
        top: Option<&Path>,
        disk_mib: u64,
        log: File,
    ) -> Result<Self> {
        let written = top.and_then(|layer| host.pool.written_layer(layer));
        let upper = match (files, written) {
            (Files::Empty, Some(layer)) => host.pool.create_above(&layer, name, disk_mib)?,
            (Files::Empty, None) => host.pool.create(name, disk_mib)?,
            (Files::Snapshot(snapshot), _) => host.pool.create_from(snapshot, name, disk_mib)?,
            (Files::Own, _) => host.pool.sandbox(name),
        };
        let run_dir = host.run_dir(name);
        std::fs::create_dir(&run_dir).map_err(at("create", &run_dir))?;
        Ok(Self { upper, log })
    }
}

/// The sockets that a sandbox is handed. They belong to its network namespace: those of another could not be stored on disk with it.
struct Sockets {
    /// The agent's listener for requests of the host.
    control: OwnedFd,
    /// The host's end of the boot socket.
    boot: UnixStream,
    /// The agent's end of the boot socket.
    agent_boot: OwnedFd,
    /// The ends of the socket between the code interpreter, which gets its one through the agent, and the zygote: the fork of the warm
    /// process.
    zygote: Option<(OwnedFd, OwnedFd)>,
}

impl Sockets {
    async fn create(host: &Host, pid: u32, with_zygote: bool) -> Result<Self> {
        let path = format!("/proc/{pid}/ns/net");
        let namespace = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| at("open", Path::new(&path))(error.into()))?;
        let create = move || {
            let control = SocketAddr::from_abstract_name(CONTROL_NAME)?;
            let control: OwnedFd = UnixListener::bind_addr(&control)?.into();
            // A socket and not a file: the messages hold secrets, which must not be on disk.
            let boot = StdUnixStream::pair()?;
            let zygote = with_zygote.then(packet::pair).transpose()?;
            if let Some((of_interpreter, _)) = &zygote {
                rustix::io::ioctl_fionbio(of_interpreter, true)?;
            }
            Ok((control, boot, zygote))
        };
        let created = host.dialer.create(&namespace, create).await;
        let (control, (boot, agent_boot), zygote) =
            created.map_err(|source| kernel("create the sockets of a sandbox", source))?;
        let boot = boot.set_nonblocking(true).and_then(|()| UnixStream::from_std(boot));
        let boot = boot.map_err(|source| kernel("create the sockets of a sandbox", source))?;
        Ok(Self { control, boot, agent_boot: agent_boot.into(), zygote })
    }
}

/// Has the first process cloned, below the warm process if there is one. A warm process that is ending is done without.
async fn begin(
    host: &Host,
    slot: u32,
    warm: Option<Arc<WarmProcess>>,
) -> Result<(Launcher, u32, Option<Arc<WarmProcess>>)> {
    let request =
        BuildRequest { id_base: host.addresses.id_base(slot), kind: JailKind::Sandbox, restore: None };
    if let Some(warm) = warm {
        match host.spawner.begin(&request, Some(&warm.namespaces)).await {
            Ok((launcher, pid)) => return Ok((launcher, pid, Some(warm))),
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to begin a sandbox below its warm process; its interpreter starts cold"
            ),
        }
    }
    let (launcher, pid) = host.spawner.begin(&request, None).await?;
    Ok((launcher, pid, None))
}

/// Forks the warm process into a sandbox that has executed its agent, and waits until the fork, the sandbox's zygote, is in place. The
/// first process has its last root and its filters by then: whatever the fork does, it finds a sandbox that is locked. When this
/// fails, the code interpreter notices that nobody serves its socket, and starts a zygote of its own.
async fn enter(host: &Host, warm: &WarmProcess, slot: u32, pid: u32, served: OwnedFd) {
    if let Err(error) = try_enter(host, warm, slot, pid, served).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "failed to fork the warm process into a sandbox; its interpreter starts cold"
        );
    }
}

async fn try_enter(host: &Host, warm: &WarmProcess, slot: u32, pid: u32, served: OwnedFd) -> Result<()> {
    let failed = |source| kernel("fork the warm process into a sandbox", source);
    let (report, theirs) = nonblocking_pair()?;
    warm.enter(pid, &theirs, &served).map_err(failed)?;
    drop((theirs, served));
    let report = sys::watch(report).map_err(failed)?;
    let step = async || {
        let mut byte = [0];
        let read =
            report.async_io(Interest::READABLE, |fd| rustix::io::read(fd, &mut byte).map_err(Into::into));
        match tokio::time::timeout(ENTER_TIMEOUT, read).await {
            Ok(Ok(1)) => Ok(()),
            Ok(Ok(_)) => Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(failed(std::io::ErrorKind::TimedOut.into())),
        }
    };
    // The fork is in the sandbox's PID namespace, and still in the warm process's control group.
    step().await?;
    adopt_forks(host, warm.slot, slot, pid)?;
    rustix::io::write(&report, b"g").map_err(|error| failed(error.into()))?;
    step().await
}

/// Moves the forks of a warm process that are in the sandbox's PID namespace to the sandbox's control group. They are looked
/// up and not asked: a warm process is not trusted, and could name any process.
fn adopt_forks(host: &Host, warm: u32, slot: u32, pid: u32) -> Result<()> {
    let namespace = |pid: i64| std::fs::read_link(format!("/proc/{pid}/ns/pid"));
    let wanted = namespace(pid.into()).map_err(|source| kernel("read a PID namespace", source))?;
    let mut found = false;
    for fork in host.cgroups.pids(warm)? {
        // Others end meanwhile.
        if namespace(fork.into()).is_ok_and(|namespace| namespace == wanted)
            && let Ok(fork) = u32::try_from(fork)
        {
            host.cgroups.attach(slot, fork)?;
            found = true;
        }
    }
    if found {
        Ok(())
    } else {
        Err(kernel("find the fork of a warm process", std::io::ErrorKind::NotFound.into()))
    }
}

pub(super) fn at(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Path { action, path, source }
}

fn kernel(action: &str, source: std::io::Error) -> Error {
    Error::Kernel { action: action.to_owned(), source }
}
