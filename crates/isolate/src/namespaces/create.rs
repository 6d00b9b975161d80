//! Starting a sandbox: one that is ready, or one made on the spot, becomes somebody's.

use std::sync::Arc;
use std::time::Instant;

use sandcove_wire::boot::Assignment;
use tracing::Instrument;

use super::prepared::{Prepared, Purpose};
use super::{Handle, Host, handle, process, record};
use crate::{Error, Files, NetworkPolicy, Record, Result, SandboxSpec, crash};

/// Starts a sandbox; on an error everything it took is given back.
pub(super) async fn create(host: Arc<Host>, spec: SandboxSpec) -> Result<Handle> {
    // Files and volumes are mounted when a sandbox is made.
    let usual = spec.files == Files::Empty && spec.mounts.is_empty();
    let spare = if usual { host.spares.take(&spec.blueprint) } else { None };
    if let Some(spare) = spare {
        match assign(&host, &spec, spare).await {
            // It died while it waited, for whatever reason: a fresh one will do.
            Err(error @ Error::SpawnerGone) => tracing::warn!(error = %error, "a spare was dead"),
            other => return other,
        }
    }
    let _hurry = host.spares.hold_off();
    let span = tracing::info_span!("prepare", sandbox_id = %spec.id);
    let fresh = Prepared::make(&host, Purpose::For(&spec)).instrument(span).await?;
    assign(&host, &spec, fresh).await
}

async fn assign(host: &Arc<Host>, spec: &SandboxSpec, prepared: Prepared) -> Result<Handle> {
    let (name, slot) = (prepared.name.clone(), prepared.slot);
    let span = tracing::info_span!("assign", sandbox_id = %spec.id, spare = prepared.was_spare());
    match try_assign(host, spec, prepared).instrument(span).await {
        Ok(handle) => Ok(handle),
        Err(error) => {
            // What is left can only be swept later; the cause is what the caller has to know. Some of it may go by its new
            // name already.
            if let Err(left) = host.release(&[&spec.id, &name], slot, spec.files.leaving()).await {
                tracing::error!(sandbox_id = %spec.id, error = &left as &dyn std::error::Error, "half-made sandbox left behind");
            }
            Err(error)
        }
    }
}

async fn try_assign(host: &Arc<Host>, spec: &SandboxSpec, mut prepared: Prepared) -> Result<Handle> {
    let started = Instant::now();
    let slot = prepared.slot;
    if spec.network != NetworkPolicy::default() {
        host.firewall.set(slot, &spec.network).await?;
    }
    let record = Record {
        id: spec.id.clone(),
        slot,
        pid: prepared.pid,
        start_ticks: process::start_ticks(prepared.pid).map_err(|_| Error::SpawnerGone)?,
        limits: spec.blueprint.limits,
        network: spec.network.clone(),
    };
    let files = {
        let (host, name, record) = (host.clone(), prepared.name.clone(), record.clone());
        let yields = prepared.was_spare();
        handle::blocking(move || {
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
            if yields { host.cgroups.yield_processors(slot, false) } else { Ok(()) }
        })
    };
    let assignment = Assignment { sandbox_id: spec.id.clone(), settings: spec.settings.clone() };
    let (files, told) = tokio::join!(files, prepared.tell(&assignment));
    files?;
    told?;
    crash::point("create.ready");
    let handle = Handle::open(host.clone(), record)?.ok_or(Error::SpawnerGone)?;
    tracing::debug!(sandbox_id = %spec.id, took = ?started.elapsed(), spare = prepared.was_spare(), "sandbox assigned");
    Ok(handle)
}
