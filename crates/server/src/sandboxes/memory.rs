//! Memory of paused sandboxes. It is limited for each team and for the host: a sandbox that is paused beyond a limit makes the
//! oldest one lose its memory. That goes to disk, where this host can store memory and the sandbox can be stored; otherwise it is lost, which
//! is a pause that keeps only files. A sandbox counts as running until its memory has room
//! among that of the paused ones, so that there is never more of either than the limits say.

use std::collections::HashMap;
use std::sync::Arc;

use sandcove_wire::id::SandboxId;
use tokio::sync::{Mutex, MutexGuard};
use uuid::Uuid;

use super::parking;
use super::shared::{Entry, Shared};
use crate::domain::frozen::{Frozen, FrozenLimits, for_slot, surplus};
use crate::domain::lifecycle::Command;
use crate::domain::team::Quota;

/// The memory that paused sandboxes may hold.
#[derive(Debug)]
pub(super) struct FrozenMemory {
    /// Maximum of all teams, bytes.
    max_bytes: u64,
    /// Held while room is made, and until the sandbox it is made for counts as paused. The driver of a sandbox that counts as
    /// paused never waits for it, and so can always release memory.
    changes: Mutex<()>,
}

impl FrozenMemory {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self { max_bytes, changes: Mutex::default() }
    }
}

/// Whether a sandbox that was just frozen fits within the limits beside the paused ones.
pub(super) fn has_room(shared: &Shared, id: &SandboxId, newcomer: Frozen, quota: &Quota) -> bool {
    let (_, mut all) = frozen(shared, Some(id));
    all.push(newcomer);
    surplus(&all, newcomer.team, limits(shared, quota)).is_none()
}

/// Makes room for a sandbox that was just frozen, by releasing the memory of older ones. The room is reserved while the guard
/// lives; none when the sandbox itself has to lose its memory.
pub(super) async fn make_room<'a>(
    shared: &'a Shared,
    id: &SandboxId,
    newcomer: Frozen,
    quota: &Quota,
) -> Option<MutexGuard<'a, ()>> {
    let changes = shared.memory.changes.lock().await;
    loop {
        let (entries, mut all) = frozen(shared, Some(id));
        all.push(newcomer);
        let Some(index) = surplus(&all, newcomer.team, limits(shared, quota)) else { return Some(changes) };
        if !release(shared, entries.get(index)?).await {
            return None;
        }
    }
}

/// Releases the memory of a paused sandbox, with its slot, for a start that has found none; false when there is none to
/// release.
pub(super) async fn free_slot(shared: &Shared) -> bool {
    let _changes = shared.memory.changes.lock().await;
    let (entries, all) = frozen(shared, None);
    match for_slot(&all).and_then(|index| entries.get(index)) {
        Some(entry) => release(shared, entry).await,
        None => false,
    }
}

/// Brings the sandboxes of an earlier run within the limits, which may have been lowered.
pub(super) async fn settle(shared: &Shared, quotas: &HashMap<Uuid, Quota>) {
    for (team, quota) in quotas {
        let _changes = shared.memory.changes.lock().await;
        loop {
            let (entries, all) = frozen(shared, None);
            let index = surplus(&all, *team, limits(shared, quota));
            let Some(entry) = index.and_then(|index| entries.get(index)) else { break };
            if !release(shared, entry).await {
                break;
            }
        }
    }
}

fn limits(shared: &Shared, quota: &Quota) -> FrozenLimits {
    FrozenLimits::of(quota, shared.memory.max_bytes)
}

/// The paused sandboxes that keep their memory, except one.
fn frozen(shared: &Shared, except: Option<&SandboxId>) -> (Vec<Arc<Entry>>, Vec<Frozen>) {
    let all = shared.all().into_iter().filter(|entry| except != Some(&entry.details.id));
    all.filter_map(|entry| {
        let view = entry.view();
        let frozen = Frozen { team: view.details.team, bytes: view.memory, since: view.session.end_at };
        parking::is_frozen(&view).then_some((entry, frozen))
    })
    .unzip()
}

/// Releases the memory of a paused sandbox, to disk if possible; false when it still has it.
async fn release(shared: &Shared, entry: &Entry) -> bool {
    // Why it cannot be stored is in its log.
    if shared.parking.is_possible && entry.execute(Command::Park).await.is_ok() {
        return true;
    }
    match entry.execute(Command::Demote).await {
        Ok(_) => {
            shared.telemetry.sandbox_demoted();
            true
        }
        Err(error) => {
            // It may have been resumed or killed meanwhile, and is paused no more.
            let is_paused = parking::is_frozen(&entry.view());
            if is_paused {
                tracing::error!(sandbox_id = %entry.details.id, error = ?error, "memory of a paused sandbox was not released");
            }
            !is_paused
        }
    }
}
