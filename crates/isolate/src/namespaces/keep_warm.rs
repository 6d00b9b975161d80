//! Keeping warm processes: starting them, and replacing dead ones.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use sandcove_wire::boot::WARM_DIRECTORY;
use sandcove_wire::id::SandboxId;

use super::host::{Host, Keep};
use super::running::RunningSandbox;
use super::warm::{Keeping, WARM_PREFIX, WarmProcess, WarmSpec, nonblocking_pair};
use super::{process, record};
use crate::jail::{BuildRequest, JailKind, Launch, Parent};
use crate::net::SLOTS_PER_INSTANCE;
use crate::{Error, Limits, NetworkPolicy, Record, Result, WarmState, jail, sys};

/// Timeout for a warm process to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Failures in a row after which the warm process of a team's template is not tried again.
const MAX_FAILURES: u32 = 3;
/// Memory that a ready process may use beyond what it uses, MiB, besides a quarter of that.
const ROOM_MIB: u64 = 64;

/// Keeps a warm process for `spec` running until the end of `keeping`. A dead one is replaced, with growing pauses.
pub(super) async fn keep(host: Arc<Host>, spec: WarmSpec, keeping: Keeping) {
    const FIRST_PAUSE: Duration = Duration::from_secs(1);
    const MAX_PAUSE: Duration = Duration::from_secs(60);
    let (mut pause, mut failures) = (FIRST_PAUSE, 0);
    let mut round = 0_u32;
    let Keeping { end, tried, priority } = &keeping;
    let note = |state, limit_mib| host.warm_processes.note(end, &spec.layers, state, limit_mib);
    loop {
        let began = Instant::now();
        let problem = match start(&host, &spec, round, &keeping).await {
            Ok((sandbox, warm)) => {
                tracing::info!(command = ?spec.command, "warm process ready");
                let start_ms = began.elapsed().as_millis() as u64;
                let (memory_mib, limit_mib) = measure(&host, &spec, warm.slot);
                note(WarmState::Ready { memory_mib, start_ms }, limit_mib);
                if !end.is_cancelled() {
                    host.warm_processes.insert(spec.layers.clone(), warm);
                }
                tried.cancel();
                let died = end.run_until_cancelled(sandbox.wait()).await.is_some();
                host.warm_processes.take_out(&spec.layers);
                priority.end();
                if died {
                    tracing::warn!(command = ?spec.command, "the warm process died");
                }
                let _ = sandbox.destroy().await;
                pause = FIRST_PAUSE;
                "the process died".to_owned()
            }
            Err(error) => {
                tried.cancel();
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to start a warm process, trying again"
                );
                match error {
                    Error::Tool { reason, .. } => reason,
                    // The others name paths of the host.
                    _ => "the server could not start it".to_owned(),
                }
            }
        };
        if end.is_cancelled() {
            return;
        }
        failures += 1;
        if spec.is_foreign && failures == MAX_FAILURES {
            // Sandboxes start their interpreters cold from now on.
            note(WarmState::Failed { reason: problem }, 0);
            return;
        }
        note(WarmState::Starting, spec.limits.memory_mib);
        if end.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
        pause = (pause * 2).min(MAX_PAUSE);
        round = round.wrapping_add(1);
    }
}

/// The memory of a process that is ready, and its new limit if a stranger has written it, MiB: from now on it only forks.
fn measure(host: &Host, spec: &WarmSpec, slot: u32) -> (u64, u64) {
    let usage = host.cgroups.usage(slot).unwrap_or_default();
    // Pages of files are shared with all sandboxes anyway, and given back under pressure.
    let used = usage.memory_bytes.saturating_sub(usage.cache_bytes).div_ceil(1 << 20);
    let limit = (used + used / 4 + ROOM_MIB).min(spec.limits.memory_mib);
    if !spec.is_foreign {
        return (used, spec.limits.memory_mib);
    }
    match host.cgroups.limit(slot, &Limits { memory_mib: limit, ..spec.limits }) {
        Ok(()) => (used, limit),
        Err(error) => {
            tracing::debug!(slot, error = &error as &dyn std::error::Error, "failed to lower a limit");
            (used, spec.limits.memory_mib)
        }
    }
}

async fn start(
    host: &Arc<Host>,
    spec: &WarmSpec,
    round: u32,
    keeping: &Keeping,
) -> Result<(RunningSandbox, WarmProcess)> {
    let slot = host.slots.take()?;
    // In the form of a sandbox id, so that a later server sweeps these directories like those of a sandbox.
    let name = format!("{WARM_PREFIX}{}x{slot}x{round}", std::process::id());
    let id: SandboxId =
        name.parse().map_err(|_| kernel("name a warm process", std::io::ErrorKind::InvalidInput.into()))?;
    match build(host, spec, slot, id.clone(), keeping).await {
        Ok(started) => Ok(started),
        Err(error) => {
            keeping.priority.end();
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
    keeping: &Keeping,
) -> Result<(RunningSandbox, WarmProcess)> {
    let kind = JailKind::Warm {
        sandboxes_from: host.addresses.id_base(0),
        sandboxes_count: SLOTS_PER_INSTANCE * jail::ID_COUNT,
    };
    // Its own ids lie outside the range of its sandboxes.
    let id_base = host.addresses.warm_id_base(slot);
    let (launcher, pid) = host.spawner.begin(&BuildRequest { id_base, kind, restore: None }, None).await?;
    let upper = host.pool.create(&id, spec.limits.disk_mib)?;
    host.cgroups.create(slot)?;
    host.cgroups.limit(slot, &spec.limits)?;
    host.cgroups.attach(slot, pid)?;
    if spec.is_foreign {
        keeping.priority.begin(&host.cgroups, slot)?;
    }
    let run_dir = host.run_dir(&id);
    std::fs::create_dir(&run_dir).map_err(|source| Error::Path {
        action: "create",
        path: run_dir.clone(),
        source,
    })?;
    let start_ticks = process::start_ticks(pid).map_err(|source| kernel("read the start time", source))?;
    let record = Record {
        id: id.clone(),
        slot,
        pid,
        start_ticks,
        limits: spec.limits,
        network: NetworkPolicy::default(),
        closed_link: false,
        programs: host.programs.current(),
    };
    record::write(&run_dir, &record)?;
    let sandbox = RunningSandbox::open(host.clone(), record)?.ok_or(Error::ProcessGone)?;

    let namespace = |name: &str| {
        open(format!("/proc/{pid}/ns/{name}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| kernel("open the namespaces of a warm process", error.into()))
    };
    let namespaces = Parent { users: namespace("user")?, processes: namespace("pid")? };
    let log = super::log::create().map_err(|source| kernel("create a log", source))?;
    let (control, theirs) = nonblocking_pair()?;
    let launch = Launch {
        hostname: "warm".into(),
        layers: spec.layers.clone(),
        upper,
        volumes: Vec::new(),
        address: None,
        programs: host.programs.current(),
        tmpfs_mib: 64,
        kind,
        command: spec.command.clone(),
        env: spec.env.clone(),
        directory: Some(WARM_DIRECTORY.to_owned()),
    };
    launcher.launch(&launch, &[log.as_fd(), theirs.as_fd()]).await?;
    drop(theirs);
    let watched = sys::watch(control).map_err(|source| kernel("watch a socket", source))?;
    let mut byte = [0];
    let read = watched
        .async_io(tokio::io::Interest::READABLE, |fd| rustix::io::read(fd, &mut byte).map_err(Into::into));
    let read = keeping.end.run_until_cancelled(tokio::time::timeout(READY_TIMEOUT, read)).await;
    match read.unwrap_or(Ok(Ok(0))) {
        Ok(Ok(1)) => {
            let (control, common) = (watched.into_inner(), Mutex::default());
            let is_foreign = spec.is_foreign;
            let warm = WarmProcess { pid, start_ticks, is_foreign, common, slot, namespaces, control };
            Ok((sandbox, warm))
        }
        read => {
            let problem = match read {
                Ok(_) => "it ended before it was ready".to_owned(),
                Err(_) => format!("it was not ready within {} s", READY_TIMEOUT.as_secs()),
            };
            let log = super::log::tail(&log);
            // The caller releases the slot, and nobody else may: by then it can be the slot of a sandbox.
            let _ = sandbox.end_processes().await;
            let reason = format!("{problem}; the end of its log: {log}");
            Err(Error::Tool { tool: "warm process", reason })
        }
    }
}

fn kernel(action: &str, source: std::io::Error) -> Error {
    Error::Kernel { action: action.to_owned(), source }
}
