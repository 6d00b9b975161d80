//! After a restart: sandboxes that still live get their drivers back, paused ones whose processes are gone are kept as
//! files, the others lose their rows, and whatever the host holds for none of them is swept.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use sandcove_isolate::{Handle, Known};
use sandcove_wire::api::observe::LogLevel;
use sandcove_wire::id::SandboxId;
use uuid::Uuid;

use super::lifecycle::Keep;
use super::record::{Stored, StoredState, View};
use super::registry::{Registry, Shared};
use crate::Result;
use crate::events::{Happened, KillReason, describe};
use crate::teams::Team;

/// Sandboxes looked for at once.
const AT_ONCE: usize = 32;

/// Brings the registry in line with what runs. Expiry is enforced by the drivers, also for what came due meanwhile.
pub(super) async fn recover(registry: &Registry) -> Result<()> {
    let shared = &registry.shared;
    let mut known = Known::default();
    let mut teams: HashMap<Uuid, Option<Team>> = HashMap::new();
    let rows = shared.store.sandboxes().await?;
    let mut found = stream::iter(rows)
        .map(|stored| async {
            let survivor = find(shared, &stored).await;
            (stored, survivor)
        })
        .buffer_unordered(AT_ONCE);
    while let Some((stored, survivor)) = found.next().await {
        let id = stored.details.id.clone();
        let team = match teams.get(&stored.details.team) {
            Some(team) => team.clone(),
            None => {
                let team = shared.store.team(stored.details.team).await?;
                teams.insert(stored.details.team, team.clone());
                team
            }
        };
        let (Some(team), Some(survivor)) = (team, survivor) else {
            tracing::warn!(sandbox_id = %id, "sandbox did not survive the restart");
            let orphaned = Happened::Killed(KillReason::Orphaned);
            shared.store.delete_sandbox(&id, &describe(&View::of_stored(&stored), &orphaned)).await?;
            continue;
        };
        match &survivor {
            Survivor::Live(_) => known.live.insert(id),
            Survivor::Files => known.stored.insert(id),
        };
        readopt(registry, stored, team, survivor).await?;
    }
    known.snapshots = shared.store.snapshot_builds().await?.iter().map(Uuid::to_string).collect();
    let report = shared.backend.sweep(&known).await;
    if !report.removed.is_empty() || !report.failed.is_empty() {
        tracing::info!(removed = ?report.removed, failed = ?report.failed, "swept what belonged to no sandbox");
    }
    Ok(())
}

/// What there is of a sandbox.
enum Survivor {
    Live(Handle),
    Files,
}

async fn find(shared: &Shared, stored: &Stored) -> Option<Survivor> {
    let id = &stored.details.id;
    let files = || shared.backend.has_files(id).then_some(Survivor::Files);
    // A crash between a change and its row leaves the two apart; the row is what callers were told.
    match stored.state {
        StoredState::Running => {
            let handle = shared.backend.adopt(id).await?;
            aligned(id, handle.resume().await).then_some(Survivor::Live(handle))
        }
        StoredState::Paused(Keep::Memory) => match shared.backend.adopt(id).await {
            Some(handle) if aligned(id, handle.freeze().await) => Some(Survivor::Live(handle)),
            _ => files(),
        },
        // Processes that are left are ended by the sweep.
        StoredState::Paused(Keep::Files) => files(),
    }
}

fn aligned(id: &SandboxId, result: sandcove_isolate::Result<()>) -> bool {
    if let Err(err) = &result {
        tracing::error!(sandbox_id = %id, error = ?err, "the processes of a sandbox are not usable");
    }
    result.is_ok()
}

async fn readopt(registry: &Registry, mut stored: Stored, team: Team, survivor: Survivor) -> Result<()> {
    let shared: &Arc<Shared> = &registry.shared;
    if stored.details.build.is_none() {
        stored.details.build = shared.store.build(stored.details.source.build_id).await?;
    }
    let (handle, note) = match survivor {
        Survivor::Live(handle) => (Some(handle), "sandbox found again after a restart of the server"),
        Survivor::Files => (None, "files of the sandbox found again after a restart of the server"),
    };
    let slot = match stored.state {
        StoredState::Running => Some(shared.admission.adopt(team.id)),
        StoredState::Paused(Keep::Memory) if handle.is_none() => {
            stored.state = StoredState::Paused(Keep::Files);
            let Stored { details, settings, state, session } = &stored;
            shared.store.update_sandbox(&details.id, *state, session, settings, None).await?;
            None
        }
        StoredState::Paused(_) => None,
    };
    let driver = shared.register(stored, team, handle, slot);
    driver.journal.write(LogLevel::Info, note);
    registry.spawn(driver);
    Ok(())
}
