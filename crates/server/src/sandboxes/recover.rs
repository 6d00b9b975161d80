//! Recovery after a restart. Sandboxes that still live get drivers, paused ones whose processes are gone are kept as files,
//! the others lose their rows, and whatever the host holds for none of them is swept. Every sandbox is looked at before the
//! first is changed: when one is neither known to be alive nor known to be dead, the start fails and changes nothing.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use sandcove_host::Handle;
use sandcove_isolate::{Known, crash};
use sandcove_wire::api::observe::LogLevel;
use sandcove_wire::id::SandboxId;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::driver::Driver;
use super::memory;
use super::shared::Shared;
use crate::domain::event::{KillReason, LifecycleEvent};
use crate::domain::lifecycle::Keep;
use crate::domain::sandbox::{Build, Stored, StoredState};
use crate::domain::team::{Quota, Team};
use crate::events::describe;
use crate::{Error, Result};

/// Sandboxes that are looked at concurrently.
const CONCURRENT_LOOKUPS: usize = 32;

/// Brings the known sandboxes in line with what runs. The drivers, which run in `tasks`, also end sessions that were over
/// while no server ran.
pub(super) async fn recover(shared: &Arc<Shared>, tasks: &TaskTracker) -> Result<()> {
    let mut known = Known::default();
    let mut teams: HashMap<Uuid, Option<Team>> = HashMap::new();
    let mut quotas: HashMap<Uuid, Quota> = HashMap::new();
    let found = find_all(shared).await?;
    crash::point("recover.found");
    // Before the first driver runs, which may park another sandbox of the team.
    for (Stored { details, .. }, survivor) in &found {
        if let Some(Survivor::Memory(bytes)) = survivor {
            shared.parked.found(details.team, &details.id, *bytes);
        }
    }
    for (mut stored, survivor) in found {
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
            let orphaned = LifecycleEvent::Killed(KillReason::Orphaned);
            let Stored { details, session, settings, .. } = &stored;
            let event = describe(details, session, &settings.network, &orphaned);
            shared.store.delete_sandbox(&id, &event).await?;
            continue;
        };
        match &survivor {
            Survivor::Live(_) => known.live.insert(id),
            Survivor::Memory(_) => known.parked.insert(id.clone()) && known.stored.insert(id),
            Survivor::Files => known.stored.insert(id),
        };
        renew_password(shared, &mut stored).await?;
        quotas.insert(team.id, team.quota);
        let driver = readopt(shared, stored, team, survivor).await?;
        tasks.spawn(driver.run());
    }
    known.snapshots = shared.store.snapshot_builds().await?.iter().map(Uuid::to_string).collect();
    known.snapshots.extend(shared.store.step_snapshots().await?);
    known.snapshots.extend(shared.store.started_snapshots().await?);
    let report = shared.host.sweep(known).await.map_err(Error::Leftovers)?;
    if !report.removed.is_empty() || !report.failed.is_empty() {
        tracing::info!(removed = ?report.removed, failed = ?report.failed, "swept what belonged to no sandbox");
    }
    let (shared, stopping) = (shared.clone(), shared.stopping.clone());
    let settle = async move { memory::settle(&shared, &quotas).await };
    tasks.spawn(async move { stopping.run_until_cancelled(settle).await });
    Ok(())
}

/// Seals the password of the sandbox's proxy anew if it was sealed with a former key: sandboxes outlive the keys.
async fn renew_password(shared: &Shared, stored: &mut Stored) -> Result<()> {
    let Stored { details, settings, state, session } = stored;
    let proxy = settings.network.proxy.as_mut();
    let Some(password) = proxy.and_then(|proxy| proxy.password.as_mut()) else { return Ok(()) };
    match shared.host.renew_sealed(&password.context, &password.sealed).await {
        Ok(None) => Ok(()),
        Ok(Some(sealed)) => {
            password.sealed = sealed;
            shared.store.update_sandbox(&details.id, *state, session, settings, None).await
        }
        Err(error) => {
            tracing::error!(
                sandbox_id = %details.id,
                error = &error as &dyn std::error::Error,
                "the password of a sandbox's proxy cannot be opened: set its network again"
            );
            Ok(())
        }
    }
}

/// The part of a sandbox that has survived.
enum Survivor {
    /// The processes, and so everything.
    Live(Handle),
    /// The files of a parked sandbox, and its memory on disk, with its size in bytes.
    Memory(u64),
    /// The files of a paused sandbox.
    Files,
}

/// Looks at every sandbox that has a row, and ends none.
async fn find_all(shared: &Shared) -> Result<Vec<(Stored, Option<Survivor>)>> {
    let looks = stream::iter(shared.store.sandboxes().await?).map(|stored| async {
        let survivor = find(shared, &stored).await;
        (stored, survivor)
    });
    let mut looks = looks.buffer_unordered(CONCURRENT_LOOKUPS);
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
    // After a crash between a transition and its row the two differ; callers rely on the row.
    Ok(match stored.state {
        StoredState::Running => match shared.host.adopt(id).await? {
            Some(handle) => aligned(&handle, handle.resume().await).await?.then_some(Survivor::Live(handle)),
            None => None,
        },
        StoredState::Paused(Keep::Memory) => {
            let stored_bytes = shared.host.stored_memory(id).await?;
            if let (Some(_), Some(bytes)) = (stored.settings.parked, stored_bytes) {
                // Processes that there may be were being ended, or restored and did not run yet. The sweep ends them.
                return Ok(files(shared, id).await?.map(|_| Survivor::Memory(bytes)));
            }
            match (shared.host.adopt(id).await?, stored_bytes) {
                (Some(handle), _) if aligned(&handle, handle.freeze().await).await? => {
                    Some(Survivor::Live(handle))
                }
                (_, Some(bytes)) => files(shared, id).await?.map(|_| Survivor::Memory(bytes)),
                (_, None) => files(shared, id).await?,
            }
        }
        // The sweep ends remaining processes.
        StoredState::Paused(Keep::Files) => files(shared, id).await?,
    })
}

async fn files(shared: &Shared, id: &SandboxId) -> sandcove_isolate::Result<Option<Survivor>> {
    Ok(shared.host.has_files(id).await?.then_some(Survivor::Files))
}

/// Whether a sandbox is now as its row says; false when its processes have ended meanwhile.
async fn aligned(handle: &Handle, result: sandcove_isolate::Result<()>) -> sandcove_isolate::Result<bool> {
    let Err(error) = result else { return Ok(true) };
    if handle.has_ended().await? { Ok(false) } else { Err(error) }
}

/// Makes a sandbox known again, and returns its driver.
async fn readopt(shared: &Arc<Shared>, mut stored: Stored, team: Team, survivor: Survivor) -> Result<Driver> {
    if let Build::Summary(summary) = &stored.details.build
        && let Some(mut record) = shared.store.build(summary.build_id).await?
    {
        // The record may be of a later build of the template; the sandbox is what its row says.
        record.name.clone_from(&summary.alias);
        record.envd_version.clone_from(&summary.envd_version);
        stored.details.build = Build::Record(Box::new(record));
    }
    let parked = match survivor {
        Survivor::Memory(bytes) => Some(bytes),
        Survivor::Live(_) | Survivor::Files => None,
    };
    let (handle, note) = match survivor {
        Survivor::Live(handle) => (Some(handle), "sandbox found again after a restart of the server"),
        Survivor::Memory(_) => {
            (None, "memory of the sandbox found again on disk after a restart of the server")
        }
        Survivor::Files => (None, "files of the sandbox found again after a restart of the server"),
    };
    let permit = match stored.state {
        StoredState::Running => Some(shared.admission.adopt(team.id)),
        StoredState::Paused(Keep::Memory) if handle.is_none() || stored.settings.parked != parked => {
            stored.settings.parked = parked;
            if handle.is_none() && parked.is_none() {
                stored.state = StoredState::Paused(Keep::Files);
            }
            let Stored { details, settings, state, session } = &stored;
            shared.store.update_sandbox(&details.id, *state, session, settings, None).await?;
            None
        }
        StoredState::Paused(_) => None,
    };
    let frozen = match (stored.state, &handle) {
        // All that it may have, when it is not known what it has.
        (StoredState::Paused(Keep::Memory), Some(handle)) => {
            let limit = stored.details.limits.memory_mib << 20;
            handle.usage().await.map_or(limit, |usage| usage.memory_bytes)
        }
        _ => 0,
    };
    let driver = Driver::register(shared, stored, team, handle, permit);
    driver.view.send_modify(|view| view.memory = frozen);
    driver.log.write(LogLevel::Info, note);
    Ok(driver)
}
