//! Removing leftovers that belong to no known sandbox: after a crash of the server at any point of any operation, and before
//! a normal stop.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use sandcove_wire::id::SandboxId;

use super::host::{Host, Keep};
use super::purge::{self, note};
use super::record;
use super::running::RunningSandbox;
use super::unassigned::POOLED_PREFIX;
use super::warm::WARM_PREFIX;
use crate::{Known, Record, Result, SweepReport};

/// Number of sandboxes removed at a time.
const MAX_CONCURRENT: usize = 16;

/// Whether these are the directories of a warm process or an unassigned sandbox.
pub(super) fn is_precreated(id: &SandboxId) -> bool {
    [WARM_PREFIX, POOLED_PREFIX].iter().any(|prefix| id.as_str().starts_with(prefix))
}

/// Removes everything that is not in `known`.
pub(super) async fn sweep(host: &Arc<Host>, known: &Known) -> SweepReport {
    let mut report = SweepReport::default();
    // Whole sandboxes first, by their records. The slots of all that run are taken before the first is ended.
    let orphans: Vec<_> = run_ids(host)
        .into_iter()
        .filter(|id| !known.live.contains(id))
        .map(|id| (Found::of(host, &id), id))
        .collect();
    let mut cleared = stream::iter(orphans)
        .map(|(found, id)| async {
            let keep = if known.stored.contains(&id) { Keep::Files } else { Keep::Nothing };
            let result = match found {
                Ok(found) => clear(host, &id, found, keep).await,
                Err(error) => Err(error),
            };
            (id, result)
        })
        .buffer_unordered(MAX_CONCURRENT);
    let mut cleared_ids = HashSet::new();
    while let Some((id, result)) = cleared.next().await {
        note(&mut report, id.to_string(), result);
        cleared_ids.insert(id);
    }
    // Then parts that no record names.
    let is_known =
        |id: &SandboxId| known.live.contains(id) || known.stored.contains(id) || cleared_ids.contains(id);
    for id in host.pool.ids().into_iter().filter(|id| !is_known(id)) {
        note(&mut report, id.to_string(), host.pool.delete(&id));
    }
    for name in host.pool.snapshot_names().into_iter().filter(|name| !known.snapshots.contains(name)) {
        let result = host.pool.delete_snapshot(&name);
        note(&mut report, format!("snapshot {name}"), result);
    }
    let parked = host.parking.generations.sweep(|name| known.parked.iter().any(|id| id.as_str() == name));
    let of_snapshots = host.parking.snapshots.sweep(|name| known.snapshots.contains(name));
    for (name, result) in parked.into_iter().chain(of_snapshots) {
        note(&mut report, format!("memory {name}"), result);
    }
    free_slots(host, &mut report).await;
    // The firewall was replaced at the start: sandboxes that keep running get their egress proxies back.
    for id in &known.live {
        let Ok(record) = record::read(&host.run_dir(id)) else { continue };
        if let Err(error) = set_network(host, &record).await {
            tracing::error!(sandbox_id = %id, error = &error as &dyn std::error::Error, "failed to restore a network policy");
        }
    }
    report
}

/// Applies the recorded policy of a sandbox that keeps running. Its link was left closed if an earlier server ended while it opened the policy.
async fn set_network(host: &Host, record: &Record) -> Result<()> {
    if record.has_rules() {
        host.firewall.set(record.slot, &record.network).await?;
    }
    host.links.set_closed(&host.addresses.link(record.slot), record.closed_link).await
}

/// State of a sandbox that is to be removed.
enum Found {
    /// Processes run. The slot stays taken until all resources are released.
    Running(RunningSandbox),
    /// The processes have ended; the slot they had.
    Dead(u32),
    /// No record was written; the parts are found later.
    Unrecorded,
}

impl Found {
    /// Inspects the sandbox `id`. The slot of processes that run, or may run, is taken until they are known to have ended.
    fn of(host: &Arc<Host>, id: &SandboxId) -> Result<Self> {
        let Ok(record) = record::read(&host.run_dir(id)) else { return Ok(Self::Unrecorded) };
        let slot = record.slot;
        match RunningSandbox::recorded(host.clone(), record) {
            Ok(Some(sandbox)) => {
                host.slots.mark(slot);
                Ok(Self::Running(sandbox))
            }
            Ok(None) => Ok(Self::Dead(slot)),
            Err(error) => {
                host.slots.mark(slot);
                Err(error)
            }
        }
    }
}

/// Removes a sandbox, except what `keep` names. The resources of a running one are released in the background.
async fn clear(host: &Arc<Host>, id: &SandboxId, found: Found, keep: Keep) -> Result<()> {
    match (found, keep) {
        (Found::Running(sandbox), Keep::Nothing) => sandbox.destroy().await,
        (Found::Running(sandbox), Keep::Files) => sandbox.shut_down().await,
        (Found::Dead(slot), _) if host.slots.mark(slot) => host.release(&[id], slot, keep).await,
        (Found::Dead(_) | Found::Unrecorded, _) => remove_files(host, id, keep),
    }
}

/// Removes everything but the clients' sandboxes, before a normal stop, when no sandbox is created any more.
pub(super) async fn all_but_sandboxes(host: &Arc<Host>) -> SweepReport {
    let mut report = SweepReport::default();
    let (mut kept, mut unrecorded) = (Vec::new(), Vec::new());
    for id in run_ids(host) {
        let precreated = is_precreated(&id);
        match record::read(&host.run_dir(&id)) {
            Ok(record) if precreated => {
                let result = host.release(&[&id], record.slot, Keep::Nothing).await;
                note(&mut report, id.to_string(), result);
            }
            Ok(record) => kept.push(record.slot),
            Err(_) if precreated => unrecorded.push(id),
            Err(_) => {}
        }
    }
    // A creation that was cancelled holds a slot that has no owner.
    host.slots.keep_only(&kept);
    free_slots(host, &mut report).await;
    for id in unrecorded {
        note(&mut report, id.to_string(), remove_files(host, &id, Keep::Nothing));
    }
    if kept.is_empty() {
        remove_shared(host, &mut report).await;
    }
    report
}

/// Ends the spawner and removes the resources that sandboxes share; no sandbox is left.
pub(super) async fn remove_shared(host: &Arc<Host>, report: &mut SweepReport) {
    let spawner = host.clone();
    let _ = tokio::task::spawn_blocking(move || spawner.spawner.end()).await;
    purge::remove_shared(&host.config.data_dir, host.number, &host.cgroups, report).await;
}

/// Removes control groups and interfaces of slots that are free.
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

fn run_ids(host: &Host) -> Vec<SandboxId> {
    let entries = std::fs::read_dir(host.config.data_dir.join("run")).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Deletes the directories of a sandbox that holds no slot.
fn remove_files(host: &Host, id: &SandboxId, keep: Keep) -> Result<()> {
    if keep == Keep::Nothing {
        host.pool.delete(id)?;
    }
    let path = host.run_dir(id);
    std::fs::remove_dir_all(&path).map_err(|source| crate::Error::Path { action: "delete", path, source })
}
