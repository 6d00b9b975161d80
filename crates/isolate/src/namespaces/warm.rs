//! Warm processes: per template one interpreter that has done its imports and waits in a jail of its own to be forked into
//! new sandboxes. The start of an interpreter, a second or more, is paid once, before any request.
//!
//! The user namespace of a warm process is the parent of its sandboxes' user namespaces, so it may enter these and no
//! others. When a warm process dies, sandboxes start their interpreters cold until it is replaced.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use sandcove_wire::boot::WARM_COMMAND;
use sandcove_wire::id::SandboxId;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::running::Keep;
use super::sweep::WARM_PREFIX;
use super::{Host, RunningSandbox, process, record};
use crate::jail::{BuildRequest, JailKind, Launch};
use crate::net::SLOTS_PER_INSTANCE;
use crate::{Blueprint, Error, Limits, NetworkPolicy, Record, Result, jail, packet, sys};

/// A warm process to keep running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WarmSpec {
    /// Layers of the template, topmost first: sandboxes of exactly these layers get forks of the process.
    layers: Vec<PathBuf>,
    /// Program and arguments. Descriptor 3 is the control socket: the process writes one byte when it is warm, then
    /// forks for every message (see [`Enter`]).
    command: Vec<String>,
}

impl WarmSpec {
    /// Describes the warm process for sandboxes of `blueprint`.
    pub(super) fn of(blueprint: &Blueprint) -> Self {
        Self { layers: blueprint.layers.clone(), command: WARM_COMMAND.map(str::to_owned).to_vec() }
    }
}

/// The warm processes, by layers.
#[derive(Default)]
pub(super) struct WarmProcesses {
    /// Processes that are kept running, each with the token that ends it.
    kept: Mutex<Vec<(WarmSpec, CancellationToken)>>,
    ready: Mutex<HashMap<Vec<PathBuf>, Arc<WarmProcess>>>,
}

/// A warm process that is ready.
pub(super) struct WarmProcess {
    user_namespace: OwnedFd,
    control: OwnedFd,
}

/// Message to a warm process: fork, enter the jail, serve. Descriptors: the pidfd of the jail's first process, the control
/// socket to serve there, and the `cgroup.procs` files for the fork to join.
#[derive(Debug, Serialize)]
struct Enter {
    /// Bit mask of the capabilities to keep.
    capabilities: u64,
    /// The last seccomp filter to load, as hexadecimal.
    seccomp: String,
}

/// Resource limits of a warm process.
const LIMITS: Limits = Limits { memory_mib: 4096, cpus: 2, pids: 256, disk_mib: 256 };
/// Timeout for a warm process to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

impl WarmProcesses {
    /// The warm process for `layers`, if it is ready.
    pub(super) fn get(&self, layers: &[PathBuf]) -> Option<Arc<WarmProcess>> {
        self.lock().get(layers).cloned()
    }

    /// Registers the process for `spec` and returns the token that ends it; `None` when it is registered already.
    pub(super) fn begin(&self, spec: &WarmSpec) -> Option<CancellationToken> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.iter().any(|(known, _)| known == spec) {
            return None;
        }
        let end = CancellationToken::new();
        kept.push((spec.clone(), end.clone()));
        Some(end)
    }

    /// Ends the process for these layers for good.
    pub(super) fn remove(&self, layers: &[PathBuf]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, end) in kept.extract_if(.., |(spec, _)| spec.layers == layers) {
            end.cancel();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<PathBuf>, Arc<WarmProcess>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WarmProcess {
    /// The user namespace that its sandboxes' user namespaces are created in.
    pub(super) fn user_namespace(&self) -> &OwnedFd {
        &self.user_namespace
    }

    /// Asks the process to fork into a jail and serve `socket` there. The socket closes if the fork fails.
    pub(super) fn enter(
        &self,
        host: &Host,
        slot: u32,
        pidfd: BorrowedFd<'_>,
        socket: &OwnedFd,
    ) -> std::io::Result<()> {
        let groups: Vec<File> = host
            .cgroups
            .procs_files(slot)
            .into_iter()
            .map(|path| OpenOptions::new().write(true).open(path))
            .collect::<std::io::Result<_>>()?;
        let filter = jail::refusals().map_err(std::io::Error::other)?;
        let message = Enter {
            capabilities: jail::kept_mask(),
            seccomp: filter.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        let fds: Vec<BorrowedFd<'_>> =
            [pidfd, socket.as_fd()].into_iter().chain(groups.iter().map(AsFd::as_fd)).collect();
        // The socket does not block: a process that does not take its messages is as good as dead.
        packet::send(&self.control, &message, &fds)
    }
}

/// Keeps a warm process for `spec` running until `end`. A dead one is replaced, with growing pauses.
pub(super) async fn keep(host: Arc<Host>, spec: WarmSpec, end: CancellationToken) {
    const FIRST_PAUSE: Duration = Duration::from_secs(1);
    const MAX_PAUSE: Duration = Duration::from_secs(60);
    let mut pause = FIRST_PAUSE;
    let mut round = 0_u32;
    loop {
        match start(&host, &spec, round).await {
            Ok((sandbox, warm)) => {
                tracing::info!(command = ?spec.command, "warm process ready");
                host.warm_processes.lock().insert(spec.layers.clone(), Arc::new(warm));
                let died = end.run_until_cancelled(sandbox.wait()).await.is_some();
                host.warm_processes.lock().remove(&spec.layers);
                if died {
                    tracing::warn!(command = ?spec.command, "the warm process died");
                }
                let _ = sandbox.destroy().await;
                pause = FIRST_PAUSE;
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to start a warm process, trying again"
                );
            }
        }
        if end.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
        pause = (pause * 2).min(MAX_PAUSE);
        round = round.wrapping_add(1);
    }
}

async fn start(host: &Arc<Host>, spec: &WarmSpec, round: u32) -> Result<(RunningSandbox, WarmProcess)> {
    let slot = host.slots.take()?;
    // In the form of a sandbox id, so that a later server sweeps these directories like those of a sandbox.
    let name = format!("{WARM_PREFIX}{}x{slot}x{round}", std::process::id());
    let id: SandboxId =
        name.parse().map_err(|_| kernel("name a warm process", std::io::ErrorKind::InvalidInput.into()))?;
    match build(host, spec, slot, id.clone()).await {
        Ok(started) => Ok(started),
        Err(error) => {
            let _ = host.release(&[&id], slot, Keep::Nothing).await;
            Err(error)
        }
    }
}

async fn build(
    host: &Arc<Host>,
    spec: &WarmSpec,
    slot: u32,
    id: SandboxId,
) -> Result<(RunningSandbox, WarmProcess)> {
    let kind = JailKind::Warm {
        sandboxes_from: host.addresses.id_base(0),
        sandboxes_count: SLOTS_PER_INSTANCE * jail::ID_COUNT,
    };
    // Its own ids lie outside the range of its sandboxes.
    let id_base = host.addresses.warm_id_base(slot);
    let (launcher, pid) = host.spawner.begin(&BuildRequest { id_base, kind }, None).await?;
    let upper = host.pool.create(&id, LIMITS.disk_mib)?;
    host.cgroups.create(slot)?;
    host.cgroups.limit(slot, &LIMITS)?;
    host.cgroups.attach(slot, pid)?;
    let run_dir = host.run_dir(&id);
    std::fs::create_dir(&run_dir).map_err(|source| Error::Path {
        action: "create",
        path: run_dir.clone(),
        source,
    })?;
    let start_ticks = process::start_ticks(pid).map_err(|source| kernel("read the start time", source))?;
    let record =
        Record { id: id.clone(), slot, pid, start_ticks, limits: LIMITS, network: NetworkPolicy::default() };
    record::write(&run_dir, &record)?;
    let sandbox = RunningSandbox::open(host.clone(), record)?.ok_or(Error::SpawnerGone)?;

    let user_namespace =
        open(format!("/proc/{pid}/ns/user"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| kernel("open a user namespace", error.into()))?;
    let log_path = host.pool.agent_log(&id);
    let log = OpenOptions::new().create(true).append(true).open(&log_path).map_err(|source| Error::Path {
        action: "create",
        path: log_path.clone(),
        source,
    })?;
    let (control, theirs) = nonblocking_pair()?;
    let launch = Launch {
        hostname: "warm".into(),
        layers: spec.layers.clone(),
        upper,
        volumes: Vec::new(),
        libexec: host.config.libexec.clone(),
        address: None,
        tmpfs_mib: 64,
        kind,
        command: spec.command.clone(),
    };
    launcher.launch(&launch, &[log.as_fd(), theirs.as_fd()]).await?;
    drop(theirs);
    let watched = sys::watch(control).map_err(|source| kernel("watch a socket", source))?;
    let mut byte = [0];
    let read = watched
        .async_io(tokio::io::Interest::READABLE, |fd| rustix::io::read(fd, &mut byte).map_err(Into::into));
    match tokio::time::timeout(READY_TIMEOUT, read).await {
        Ok(Ok(1)) => Ok((sandbox, WarmProcess { user_namespace, control: watched.into_inner() })),
        read => {
            let problem = match read {
                Ok(_) => "it ended before it was ready".to_owned(),
                Err(_) => format!("it was not ready within {} s", READY_TIMEOUT.as_secs()),
            };
            let log = super::log::tail(&log_path);
            let _ = sandbox.destroy().await;
            let reason = format!("{problem}; the end of its log: {log}");
            Err(Error::Tool { tool: "warm process", reason })
        }
    }
}

/// Creates a pair of packet sockets of which the first, the server's, does not block.
pub(super) fn nonblocking_pair() -> Result<(OwnedFd, OwnedFd)> {
    let pair = packet::pair().map_err(|source| kernel("make a socket pair", source))?;
    rustix::io::ioctl_fionbio(&pair.0, true).map_err(|error| kernel("prepare a socket", error.into()))?;
    Ok(pair)
}

fn kernel(action: &str, source: std::io::Error) -> Error {
    Error::Kernel { action: action.to_owned(), source }
}
