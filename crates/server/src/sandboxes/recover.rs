//! After a restart: sandboxes that still live get their drivers back, the others lose their rows, and whatever the host
//! holds for sandboxes without a row is swept.

use std::collections::HashSet;
use std::sync::Arc;

use sandcove_wire::api::observe::LogLevel;

use super::record::{Stored, StoredState};
use super::registry::{Registry, Shared};
use crate::Result;

/// Brings the registry in line with what runs. Expiry is enforced by the drivers, also for what came due meanwhile.
pub(super) async fn recover(registry: &Registry) -> Result<()> {
    let shared = &registry.shared;
    let mut known = HashSet::new();
    for stored in shared.store.sandboxes().await? {
        let id = stored.details.id.clone();
        if adopt(registry, shared, stored).await? {
            known.insert(id);
        } else {
            tracing::warn!(sandbox_id = %id, "sandbox did not survive the restart");
            shared.store.delete_sandbox(&id).await?;
        }
    }
    let report = shared.backend.sweep(&known).await;
    if !report.removed.is_empty() || !report.failed.is_empty() {
        tracing::info!(removed = ?report.removed, failed = ?report.failed, "swept what belonged to no sandbox");
    }
    Ok(())
}

async fn adopt(registry: &Registry, shared: &Arc<Shared>, stored: Stored) -> Result<bool> {
    let Some(team) = shared.store.team(stored.details.team).await? else { return Ok(false) };
    let id = stored.details.id.clone();
    let Some(handle) = shared.backend.adopt(&id).await else { return Ok(false) };
    // A crash between freezing and storing leaves the two apart; the row is what callers were told.
    let (aligned, slot) = match stored.state {
        StoredState::Running => (handle.resume().await, Some(shared.quota.adopt(team.id))),
        StoredState::Paused => (handle.pause().await, None),
    };
    if let Err(err) = aligned {
        tracing::error!(sandbox_id = %id, error = ?err, "adopted sandbox is not usable, removing it");
        if let Err(err) = handle.destroy().await {
            tracing::error!(sandbox_id = %id, error = ?err, "sandbox was not removed completely");
        }
        return Ok(false);
    }
    let driver = shared.register(stored, team, handle, slot);
    driver.journal.write(LogLevel::Info, "sandbox found again after a restart of the server");
    registry.spawn(driver);
    Ok(true)
}
