//! Removing what belongs to no known sandbox: after a crash of the server, at any point of any operation, and before a
//! normal stop.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use sandcove_wire::id::SandboxId;

use super::handle::Leaving;
use super::{Handle, Host, purge, record};
use crate::{Known, NetworkPolicy, Result, SweepReport};

/// What names of warm processes and spares begin with; ids of sandboxes begin with an `i`.
pub(super) const MADE_AHEAD: [&str; 2] = ["warm", "spare"];
/// Sandboxes removed at once.
const AT_ONCE: usize = 16;

pub(super) async fn sweep(host: &Arc<Host>, known: &Known) -> SweepReport {
    let mut report = SweepReport::default();
    // Whole sandboxes first, by their record. Slots of all that run are taken before the first is ended.
    let orphans: Vec<_> = run_ids(host)
        .into_iter()
        .filter(|id| !known.live.contains(id))
        .map(|id| (Found::of(host, &id), id))
        .collect();
    let mut cleared = stream::iter(orphans)
        .map(|(found, id)| async {
            let leaving = if known.stored.contains(&id) { Leaving::Files } else { Leaving::Nothing };
            let result = match found {
                Ok(found) => clear(host, &id, found, leaving).await,
                Err(error) => Err(error),
            };
            (id, result)
        })
        .buffer_unordered(AT_ONCE);
    let mut on_their_way = HashSet::new();
    while let Some((id, result)) = cleared.next().await {
        note(&mut report, id.to_string(), result);
        on_their_way.insert(id);
    }
    // Then parts that no record speaks of.
    let is_known =
        |id: &SandboxId| known.live.contains(id) || known.stored.contains(id) || on_their_way.contains(id);
    for id in host.pool.ids().into_iter().filter(|id| !is_known(id)) {
        note(&mut report, id.to_string(), host.pool.delete(&id));
    }
    for name in host.pool.snapshot_names().into_iter().filter(|name| !known.snapshots.contains(name)) {
        let result = host.pool.delete_snapshot(&name);
        note(&mut report, format!("snapshot {name}"), result);
    }
    free_slots(host, &mut report).await;
    // The firewall was made anew at start: sandboxes that live on get their ways out by name back.
    for id in &known.live {
        if let Ok(record) = record::read(&host.run_dir(id))
            && record.network != NetworkPolicy::default()
            && let Err(error) = host.firewall.set(record.slot, &record.network).await
        {
            tracing::error!(sandbox_id = %id, error = &error as &dyn std::error::Error, "network policy not restored");
        }
    }
    report
}

/// What there is of a sandbox that is to go.
enum Found {
    /// Its processes. Nobody else gets its slot until all of it is given back.
    Running(Handle),
    /// The slot it had.
    Dead(u32),
    /// It died before its record was written: its parts are found later.
    Unrecorded,
}

impl Found {
    /// Nobody else gets the slot of what runs, or may run, before it is known to have ended.
    fn of(host: &Arc<Host>, id: &SandboxId) -> Result<Self> {
        let Ok(record) = record::read(&host.run_dir(id)) else { return Ok(Self::Unrecorded) };
        let slot = record.slot;
        match Handle::open(host.clone(), record) {
            Ok(Some(handle)) => {
                host.slots.mark(slot);
                Ok(Self::Running(handle))
            }
            Ok(None) => Ok(Self::Dead(slot)),
            Err(error) => {
                host.slots.mark(slot);
                Err(error)
            }
        }
    }
}

/// Removes a whole sandbox, but what is `leaving`; the last of one that runs is given back in the background.
async fn clear(host: &Arc<Host>, id: &SandboxId, found: Found, leaving: Leaving) -> Result<()> {
    match (found, leaving) {
        (Found::Running(handle), Leaving::Nothing) => handle.destroy().await,
        (Found::Running(handle), Leaving::Files) => handle.shut_down().await,
        (Found::Dead(slot), _) if !host.slots.is_taken(slot) => host.release(&[id], slot, leaving).await,
        (Found::Dead(_) | Found::Unrecorded, _) => forget(host, id, leaving),
    }
}

/// Before a normal stop, when nothing is made any more: removes everything that is no sandbox.
pub(super) async fn all_but_sandboxes(host: &Arc<Host>) -> SweepReport {
    let mut report = SweepReport::default();
    let (mut kept, mut half_made) = (Vec::new(), Vec::new());
    for id in run_ids(host) {
        let made_ahead = MADE_AHEAD.iter().any(|name| id.as_str().starts_with(name));
        match record::read(&host.run_dir(&id)) {
            Ok(record) if made_ahead => {
                let result = host.release(&[&id], record.slot, Leaving::Nothing).await;
                note(&mut report, id.to_string(), result);
            }
            Ok(record) => kept.push(record.slot),
            Err(_) if made_ahead => half_made.push(id),
            Err(_) => {}
        }
    }
    // What was under way when its keeper was cut off holds a slot that nobody answers for.
    host.slots.keep_only(&kept);
    free_slots(host, &mut report).await;
    for id in half_made {
        note(&mut report, id.to_string(), forget(host, &id, Leaving::Nothing));
    }
    if kept.is_empty() {
        give_back_all(host, &mut report).await;
    }
    report
}

/// Takes away what all sandboxes share; there is none left.
pub(super) async fn give_back_all(host: &Arc<Host>, report: &mut SweepReport) {
    let spawner = host.clone();
    let _ = tokio::task::spawn_blocking(move || spawner.spawner.end()).await;
    purge::give_back(&host.config.data_dir, host.number, &host.cgroups, report).await;
}

/// Removes what the host holds for slots that nobody has.
async fn free_slots(host: &Host, report: &mut SweepReport) {
    for slot in host.cgroups.slots() {
        if !host.slots.is_taken(slot) {
            note(report, format!("slot {slot}"), host.cgroups.remove(slot));
        }
    }
    let prefix = host.addresses.link_prefix();
    for link in host.links.list(&prefix).await.unwrap_or_default() {
        let slot = link.strip_prefix(&prefix).and_then(|slot| slot.parse().ok());
        if slot.is_none_or(|slot| !host.slots.is_taken(slot)) {
            note(report, link.clone(), host.links.delete(&link).await);
        }
    }
}

pub(super) fn note(report: &mut SweepReport, name: String, result: Result<()>) {
    match result {
        Ok(()) => report.removed.push(name),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, leftover = %name, "could not be swept");
            report.failed.push(name);
        }
    }
}

fn run_ids(host: &Host) -> Vec<SandboxId> {
    let entries = std::fs::read_dir(host.config.data_dir.join("run")).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn forget(host: &Host, id: &SandboxId, leaving: Leaving) -> Result<()> {
    if leaving == Leaving::Nothing {
        host.pool.delete(id)?;
    }
    let path = host.run_dir(id);
    std::fs::remove_dir_all(&path).map_err(|source| crate::Error::Path { action: "delete", path, source })
}
