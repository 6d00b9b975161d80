//! Memory of paused sandboxes that is on disk. It is limited for each team: a sandbox is parked with a reservation of what it may add, and where
//! the team has less left than that, its sandboxes are parked one at a time. So the sum never goes beyond the limit, whatever is parked at
//! the same time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sandcove_wire::id::SandboxId;
use tokio::sync::watch;
use uuid::Uuid;

/// The memory on disk of every team.
#[derive(Debug, Default)]
pub(super) struct ParkedMemory {
    teams: Mutex<HashMap<Uuid, watch::Sender<TeamParked>>>,
}

/// A sandbox that is to be parked.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToPark<'a> {
    pub(super) team: Uuid,
    pub(super) id: &'a SandboxId,
    /// Maximum size of its memory on disk, bytes.
    pub(super) max_bytes: u64,
    /// Bytes that were left when its memory was too large for them; it has the same memory still.
    pub(super) too_few: Option<u64>,
}

/// The memory on disk of one team.
#[derive(Debug)]
struct TeamParked {
    /// Limit of the team when it was read last, bytes.
    max_bytes: u64,
    /// Bytes on disk of each sandbox.
    stored: HashMap<SandboxId, u64>,
    /// Maximum bytes that each sandbox adds which is being parked.
    reserved: HashMap<SandboxId, u64>,
}

impl Default for TeamParked {
    fn default() -> Self {
        Self { max_bytes: u64::MAX, stored: HashMap::new(), reserved: HashMap::new() }
    }
}

impl TeamParked {
    /// Bytes that the team may still store, when all that is being parked is given up.
    fn left(&self) -> u64 {
        self.max_bytes.saturating_sub(self.stored.values().sum())
    }

    /// The bytes that a sandbox may have now; `None` when another one has to be parked first.
    fn room(&self, max_bytes: u64) -> Option<u64> {
        let free = self.left().saturating_sub(self.reserved.values().sum());
        (free >= max_bytes || self.reserved.is_empty()).then_some(free.min(max_bytes))
    }

    /// Whether it makes sense to park a sandbox now.
    fn may_have(&self, sandbox: &ToPark<'_>) -> bool {
        sandbox.too_few.is_none_or(|bytes| self.left() > bytes) && self.room(sandbox.max_bytes).is_some()
    }
}

/// Bytes that a sandbox which is being parked may have on disk. They are free again when this is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    team: watch::Sender<TeamParked>,
    id: SandboxId,
    bytes: u64,
}

impl Reservation {
    /// Bytes that are reserved.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts the bytes that the sandbox has on disk now.
    pub(super) fn stored(self, bytes: u64) {
        self.team.send_modify(|team| {
            team.reserved.remove(&self.id);
            team.stored.insert(self.id.clone(), bytes);
        });
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.team.send_if_modified(|team| team.reserved.remove(&self.id).is_some());
    }
}

impl ParkedMemory {
    /// Reserves bytes for a sandbox of a team with this limit, as soon as there is no other one to wait for. An error is the number of bytes that
    /// the team has left, which are too few.
    pub(super) async fn reserve(&self, sandbox: ToPark<'_>, limit: u64) -> Result<Reservation, u64> {
        let team = self.of(sandbox.team);
        set_limit(&team, limit);
        let mut changes = team.subscribe();
        loop {
            let mut outcome = None;
            team.send_if_modified(|state| {
                let left = state.left();
                if left <= sandbox.too_few.unwrap_or(0) {
                    outcome = Some(Err(left));
                } else if let Some(bytes) = state.room(sandbox.max_bytes) {
                    state.reserved.insert(sandbox.id.clone(), bytes);
                    outcome = Some(Ok(bytes));
                }
                false
            });
            match outcome {
                Some(Ok(bytes)) => return Ok(Reservation { team, id: sandbox.id.clone(), bytes }),
                Some(Err(left)) => return Err(left),
                // The sender is held here.
                None => _ = changes.changed().await,
            }
        }
    }

    /// Whether it makes sense to park a sandbox now.
    pub(super) fn may_have(&self, sandbox: &ToPark<'_>) -> bool {
        self.of(sandbox.team).borrow().may_have(sandbox)
    }

    /// Waits until it makes sense to park a sandbox.
    pub(super) async fn room(&self, sandbox: &ToPark<'_>) {
        let mut changes = self.of(sandbox.team).subscribe();
        let found = changes.wait_for(|state| state.may_have(sandbox)).await.is_ok();
        if !found {
            // The senders are never dropped.
            std::future::pending::<()>().await;
        }
    }

    /// Counts what a sandbox has on disk since an earlier run.
    pub(super) fn found(&self, team: Uuid, id: &SandboxId, bytes: u64) {
        self.of(team).send_modify(|state| _ = state.stored.insert(id.clone(), bytes));
    }

    /// Counts nothing any more for a sandbox whose memory is gone from the disk.
    pub(super) fn released(&self, team: Uuid, id: &SandboxId) {
        self.of(team).send_if_modified(|state| state.stored.remove(id).is_some());
    }

    /// Notes that the limit of a team may have been changed.
    pub(super) fn limit(&self, team: Uuid, max_bytes: u64) {
        set_limit(&self.of(team), max_bytes);
    }

    fn of(&self, team: Uuid) -> watch::Sender<TeamParked> {
        self.teams.lock().unwrap_or_else(PoisonError::into_inner).entry(team).or_default().clone()
    }
}

fn set_limit(team: &watch::Sender<TeamParked>, max_bytes: u64) {
    team.send_if_modified(|state| std::mem::replace(&mut state.max_bytes, max_bytes) != max_bytes);
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const TEAM: Uuid = Uuid::nil();

    fn id(name: &str) -> SandboxId {
        name.parse().unwrap()
    }

    fn sandbox(id: &SandboxId, max_bytes: u64) -> ToPark<'_> {
        ToPark { team: TEAM, id, max_bytes, too_few: None }
    }

    /// The outcome of a reservation that waits for nobody.
    fn reserve(parked: &ParkedMemory, sandbox: ToPark<'_>, limit: u64) -> Option<Result<Reservation, u64>> {
        parked.reserve(sandbox, limit).now_or_never()
    }

    #[test]
    fn what_is_parked_at_the_same_time_shares_the_limit() {
        let parked = ParkedMemory::default();
        let (a, b, c) = (id("a"), id("b"), id("c"));
        let first = reserve(&parked, sandbox(&a, 40), 100).unwrap().unwrap();
        let second = reserve(&parked, sandbox(&b, 40), 100).unwrap().unwrap();
        assert_eq!((first.bytes(), second.bytes()), (40, 40));
        assert!(reserve(&parked, sandbox(&c, 40), 100).is_none(), "it waits");
        assert!(!parked.may_have(&sandbox(&c, 40)));
        first.stored(30);
        assert!(reserve(&parked, sandbox(&c, 40), 100).is_none(), "30 are left");
        drop(second);
        let third = reserve(&parked, sandbox(&c, 400), 100).unwrap().unwrap();
        assert_eq!(third.bytes(), 70, "the rest, when it is alone");
        third.stored(70);
        assert_eq!(reserve(&parked, sandbox(&b, 40), 100).unwrap().unwrap_err(), 0);
        parked.released(TEAM, &a);
        assert_eq!(reserve(&parked, sandbox(&b, 40), 100).unwrap().unwrap().bytes(), 30);
    }

    #[tokio::test]
    async fn one_that_waits_goes_on_when_the_other_is_parked() {
        let parked = ParkedMemory::default();
        let (a, b) = (id("a"), id("b"));
        let first = reserve(&parked, sandbox(&a, 90), 100).unwrap().unwrap();
        let waits = parked.reserve(sandbox(&b, 90), 100);
        let ends = async {
            tokio::task::yield_now().await;
            first.stored(60);
        };
        let (second, ()) = tokio::join!(waits, ends);
        assert_eq!(second.unwrap().bytes(), 40);
    }

    #[test]
    fn memory_that_was_too_large_is_tried_again_with_more_room() {
        let parked = ParkedMemory::default();
        let (a, b) = (id("a"), id("b"));
        parked.found(TEAM, &a, 60);
        parked.limit(TEAM, 100);
        let large = ToPark { too_few: Some(40), ..sandbox(&b, 90) };
        assert!(parked.room(&large).now_or_never().is_none());
        assert_eq!(reserve(&parked, large, 100).unwrap().unwrap_err(), 40);
        parked.limit(TEAM, 101);
        assert!(parked.room(&large).now_or_never().is_some());
        parked.limit(TEAM, 50);
        assert!(!parked.may_have(&large), "a lower limit leaves what is there, and nothing more");
        parked.released(TEAM, &a);
        assert_eq!(reserve(&parked, large, 50).unwrap().unwrap().bytes(), 50);
    }
}
