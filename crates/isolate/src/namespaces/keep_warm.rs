//! Keeping warm processes: starting them, and replacing dead ones.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use sandcove_wire::id::SandboxId;
use tokio_util::sync::CancellationToken;

use super::host::{Host, Keep};
use super::running::RunningSandbox;
use super::warm::{WARM_PREFIX, WarmProcess, WarmSpec, nonblocking_pair};
use super::{process, record};
use crate::jail::{BuildRequest, JailKind, Launch};
use crate::net::SLOTS_PER_INSTANCE;
use crate::{Error, Limits, NetworkPolicy, Record, Result, jail, sys};

/// Resource limits of a warm process.
const LIMITS: Limits = Limits { memory_mib: 4096, cpus: 2, pids: 256, disk_mib: 256 };
/// Timeout for a warm process to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

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
                host.warm_processes.insert(spec.layers.clone(), warm);
                let died = end.run_until_cancelled(sandbox.wait()).await.is_some();
                host.warm_processes.take_out(&spec.layers);
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

fn kernel(action: &str, source: std::io::Error) -> Error {
    Error::Kernel { action: action.to_owned(), source }
}
