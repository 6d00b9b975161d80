//! After a restart: sandboxes that still live get their drivers back, paused ones whose processes are gone are kept as
//! files, the others lose their rows, and whatever the host holds for none of them is swept. All are looked at before the
//! first is touched: when one of them can be called neither alive nor dead, nothing happens to any.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, stream};
use sandcove_isolate::{Handle, Known, crash};
use sandcove_wire::api::observe::LogLevel;
use uuid::Uuid;

use super::lifecycle::Keep;
use super::record::{Stored, StoredState, View};
use super::registry::{Registry, Shared};
use crate::events::{Happened, KillReason, describe};
use crate::teams::Team;
use crate::{Error, Result};

/// Sandboxes looked for at once.
const AT_ONCE: usize = 32;

/// Brings the registry in line with what runs. Expiry is enforced by the drivers, also for what came due meanwhile.
pub(super) async fn recover(registry: &Registry) -> Result<()> {
    let shared = &registry.shared;
    let mut known = Known::default();
    let mut teams: HashMap<Uuid, Option<Team>> = HashMap::new();
    let found = find_all(shared).await?;
    crash::point("recover.found");
    for (stored, survivor) in found {
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

/// Looks at every sandbox there is a row of, and ends nothing.
async fn find_all(shared: &Shared) -> Result<Vec<(Stored, Option<Survivor>)>> {
    let looks = stream::iter(shared.store.sandboxes().await?).map(|stored| async {
        let survivor = find(shared, &stored).await;
        (stored, survivor)
    });
    let mut looks = looks.buffer_unordered(AT_ONCE);
    let (mut found, mut first_failure) = (Vec::new(), None);
    while let Some((stored, survivor)) = looks.next().await {
        match survivor {
            Ok(survivor) => found.push((stored, survivor)),
            Err(source) => {
                let id = stored.details.id;
                tracing::error!(sandbox_id = %id, error = &source as &dyn std::error::Error, "sandbox was not found again");
                first_failure.get_or_insert((id, source));
            }
        }
    }
    match first_failure {
        Some((id, source)) => Err(Error::NotRecovered { id, source }),
        None => Ok(found),
    }
}

async fn find(shared: &Shared, stored: &Stored) -> sandcove_isolate::Result<Option<Survivor>> {
    let id = &stored.details.id;
    let files = || shared.backend.has_files(id).then_some(Survivor::Files);
    // A crash between a change and its row leaves the two apart; the row is what callers were told.
    Ok(match stored.state {
        StoredState::Running => match shared.backend.adopt(id).await? {
            Some(handle) => aligned(&handle, handle.resume().await)?.then_some(Survivor::Live(handle)),
            None => None,
        },
        StoredState::Paused(Keep::Memory) => match shared.backend.adopt(id).await? {
            Some(handle) if aligned(&handle, handle.freeze().await)? => Some(Survivor::Live(handle)),
            _ => files(),
        },
        // Processes that are left are ended by the sweep.
        StoredState::Paused(Keep::Files) => files(),
    })
}

/// Whether a sandbox is now as its row says; it is not when it has died meanwhile.
fn aligned(handle: &Handle, result: sandcove_isolate::Result<()>) -> sandcove_isolate::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(_) if handle.wait().now_or_never().is_some() => Ok(false),
        Err(error) => Err(error),
    }
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
