//! Starting a sandbox: an unassigned one gets an id. It comes from the first of these that has one:
//!
//! 1. the stored memory of a paused sandbox or a snapshot, if the specification asks for it (`restore`);
//! 2. the pool (`sandbox_pool`);
//! 3. the stored state after the start command of the template (`restore`);
//! 4. processes that are started for this sandbox (`prepare`).

use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use sandcove_wire::boot::Assignment;
use sandcove_wire::id::SandboxId;
use tracing::Instrument;

use super::host::{Host, blocking};
use super::prepare::{Purpose, prepare};
use super::restore::restore;
use super::running::RunningSandbox;
use super::unassigned::UnassignedSandbox;
use super::{process, record};
use crate::{Error, Files, NetworkPolicy, Record, Result, SandboxSpec, StartPhase, StartPhaseKind, crash};

/// Starts a sandbox and notes the parts of the start; on an error everything is cleaned up. With `log`, the sandbox is none that has
/// booted before, and writes there.
pub(super) async fn create(
    host: Arc<Host>,
    spec: SandboxSpec,
    log: Option<&File>,
    phases: &mut Vec<StartPhase>,
) -> Result<RunningSandbox> {
    if spec.memory {
        let _pause = host.sandbox_pool.pause_refill();
        return restore(&host, &spec).await;
    }
    if spec.files == Files::Own {
        // Memory that was stored of the sandbox does not fit the files any more once processes have changed them.
        let (host, id) = (host.clone(), spec.id.clone());
        blocking(move || host.parking.generations.discard(id.as_str())).await?;
    }
    // A pooled sandbox has no files and no volumes: both are mounted when a sandbox is created.
    let can_be_pooled = spec.files == Files::Empty && spec.mounts.is_empty() && log.is_none();
    let pooled = if can_be_pooled { host.sandbox_pool.take(&spec.blueprint) } else { None };
    if let Some(pooled) = pooled {
        match assign(&host, &spec, pooled, phases).await {
            // The pooled sandbox died while it waited, so this start creates one.
            Err(error @ Error::ProcessGone) => tracing::warn!(error = %error, "a pooled sandbox was dead"),
            other => return other,
        }
    }
    let _pause = host.sandbox_pool.pause_refill();
    if can_be_pooled && let Some(snapshot) = &spec.blueprint.started {
        let continued =
            SandboxSpec { files: Files::Snapshot(snapshot.clone()), memory: true, ..spec.clone() };
        match StartPhase::timed(phases, StartPhaseKind::Prepare, restore(&host, &continued)).await {
            Err(Error::NotStored { reason }) => note_boot(&spec.id, &reason),
            other => return other,
        }
    }
    let span = tracing::info_span!("prepare", sandbox_id = %spec.id);
    let fresh = async {
        loop {
            match prepare(&host, Purpose::Start(&spec), log).await {
                // Pooled sandboxes have slots that nobody waits for.
                Err(Error::NoSlot(_)) if let Some(pooled) = host.sandbox_pool.take_any() => {
                    host.discard(pooled).await;
                }
                prepared => return prepared,
            }
        }
    };
    let fresh = StartPhase::timed(phases, StartPhaseKind::Prepare, fresh.instrument(span)).await?;
    assign(&host, &spec, fresh, phases).await
}

/// Notes that a sandbox boots, and runs its start command, though the state after that is kept.
pub(super) fn note_boot(name: &SandboxId, reason: &str) {
    tracing::warn!(%name, reason, "the state after a start command was not restored; the sandbox boots");
}

async fn assign(
    host: &Arc<Host>,
    spec: &SandboxSpec,
    sandbox: UnassignedSandbox,
    phases: &mut Vec<StartPhase>,
) -> Result<RunningSandbox> {
    let (name, slot) = (sandbox.name.clone(), sandbox.slot);
    let pooled = sandbox.pooled;
    let span = tracing::info_span!("assign", sandbox_id = %spec.id, pooled);
    let work = try_assign(host, spec, sandbox).instrument(span);
    match StartPhase::timed(phases, StartPhaseKind::Assign { pooled }, work).await {
        Ok(handle) => Ok(handle),
        Err(error) => {
            // The caller needs the cause; leftovers are removed by a sweep. Some of them may have the new name already.
            if let Err(left) = host.release(&[&spec.id, &name], slot, spec.files.kept_on_failure()).await {
                tracing::error!(sandbox_id = %spec.id, error = &left as &dyn std::error::Error, "failed to clean up after a failed start");
            }
            Err(error)
        }
    }
}

async fn try_assign(
    host: &Arc<Host>,
    spec: &SandboxSpec,
    mut sandbox: UnassignedSandbox,
) -> Result<RunningSandbox> {
    let started = Instant::now();
    let slot = sandbox.slot;
    // Before processes that run already get an identity.
    let closed_link = spec.network.is_closed();
    if closed_link {
        host.links.set_closed(&host.addresses.link(slot), true).await?;
    } else if spec.network != NetworkPolicy::default() {
        host.firewall.set(slot, &spec.network).await?;
    }
    let record = Record {
        id: spec.id.clone(),
        slot,
        pid: sandbox.pid,
        start_ticks: process::start_ticks(sandbox.pid).map_err(|_| Error::ProcessGone)?,
        limits: spec.blueprint.limits,
        network: spec.network.clone(),
        closed_link,
        programs: host.programs.current(),
    };
    let files = {
        let (host, name, record) = (host.clone(), sandbox.name.clone(), record.clone());
        let pooled = sandbox.pooled;
        blocking(move || {
            let (from, to) = (host.run_dir(&name), host.run_dir(&record.id));
            if name != record.id {
                host.pool.rename(&name, &record.id)?;
                std::fs::rename(&from, &to).map_err(|source| Error::Path {
                    action: "rename",
                    path: from,
                    source,
                })?;
            }
            crash::point("create.files");
            record::write(&to, &record)?;
            if pooled {
                host.cgroups.set_low_priority(slot, false)?;
            }
            host.burners.add(&host.cgroups, slot);
            Ok(())
        })
    };
    let mut settings = spec.settings.clone();
    if !spec.network.hosts.is_empty() {
        settings.ca_bundle = Some(host.vault.authority()?.certificate);
    }
    let assignment = Assignment { sandbox_id: spec.id.clone(), settings };
    let (files, assigned) = tokio::join!(files, sandbox.assign(host, assignment));
    files?;
    assigned?;
    crash::point("create.ready");
    let running = RunningSandbox::open(host.clone(), record)?.ok_or(Error::ProcessGone)?;
    tracing::debug!(sandbox_id = %spec.id, took = ?started.elapsed(), pooled = sandbox.pooled, "sandbox assigned");
    Ok(running)
}
