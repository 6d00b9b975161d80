//! Who may run one more sandbox, and when. A team at its own limit is refused at once; a host that is full, or busy
//! with other starts, lets starts wait in the order they came, until a deadline.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::{Error, Result};

/// What a host takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacity {
    /// Sandboxes that run at once, of all teams.
    pub(crate) sandboxes: u32,
    /// Starts under way at once; more only slow each other down.
    pub(crate) starts: u32,
    /// How long a start waits for its turn.
    pub(crate) patience: Duration,
}

/// The door; clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    running: Mutex<HashMap<Uuid, u32>>,
    room: Arc<Semaphore>,
    starts: Arc<Semaphore>,
    patience: Duration,
    closed: AtomicBool,
    waiting: AtomicUsize,
}

/// One running sandbox of a team; dropping it makes room.
#[derive(Debug)]
pub(super) struct Slot {
    admission: Admission,
    team: Uuid,
    room: Option<OwnedSemaphorePermit>,
}

/// A start whose turn it is; dropping it lets the next one begin.
#[derive(Debug)]
pub(super) struct Turn {
    /// Until when the start may still wait for something.
    pub(super) deadline: Instant,
    _permit: OwnedSemaphorePermit,
    _counted: Counted,
}

/// Counts a start from its first wait to its end.
#[derive(Debug)]
struct Counted(Admission);

impl Admission {
    pub(super) fn new(capacity: Capacity) -> Self {
        let semaphore = |permits: u32| Arc::new(Semaphore::new(permits as usize));
        Self {
            inner: Arc::new(Inner {
                running: Mutex::default(),
                room: semaphore(capacity.sandboxes),
                starts: semaphore(capacity.starts.max(1)),
                patience: capacity.patience,
                closed: AtomicBool::new(false),
                waiting: AtomicUsize::new(0),
            }),
        }
    }

    /// Counts one more sandbox of a team that may run `most`. It does not have room on the host yet.
    pub(super) fn reserve(&self, team: Uuid, most: u32) -> Result<Slot> {
        if self.inner.closed.load(Ordering::Relaxed) {
            return Err(Error::Draining);
        }
        self.count(team, most)
    }

    fn count(&self, team: Uuid, most: u32) -> Result<Slot> {
        let mut running = self.lock();
        let count = running.entry(team).or_default();
        if *count >= most {
            return Err(Error::TooManySandboxes(most));
        }
        *count += 1;
        drop(running);
        Ok(Slot { admission: self.clone(), team, room: None })
    }

    /// A slot with room, or a refusal at once: for a sandbox that is there already and is to run again. It can be nowhere
    /// else, so a closed door does not keep it out.
    pub(super) fn take(&self, team: Uuid, most: u32) -> Result<Slot> {
        let mut slot = self.count(team, most)?;
        slot.room = Some(self.inner.room.clone().try_acquire_owned().map_err(|_| Error::NoRoom)?);
        Ok(slot)
    }

    /// A slot for a sandbox that runs already, whatever the limits are now.
    pub(super) fn adopt(&self, team: Uuid) -> Slot {
        *self.lock().entry(team).or_default() += 1;
        Slot { admission: self.clone(), team, room: self.inner.room.clone().try_acquire_owned().ok() }
    }

    /// Waits until the host has room for `slot` and its start may begin.
    pub(super) async fn wait_for_turn(&self, slot: &mut Slot) -> Result<Turn> {
        let deadline = Instant::now() + self.inner.patience;
        self.inner.waiting.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(self.clone());
        if slot.room.is_none() {
            let room = timeout_at(deadline, self.inner.room.clone().acquire_owned()).await;
            slot.room = Some(room.map_err(|_| Error::NoRoom)?.map_err(|_| Error::ShuttingDown)?);
        }
        let permit = timeout_at(deadline, self.inner.starts.clone().acquire_owned())
            .await
            .map_err(|_| Error::PlacementTimeout)?
            .map_err(|_| Error::ShuttingDown)?;
        Ok(Turn { deadline, _permit: permit, _counted: counted })
    }

    /// Takes no new sandboxes from now on, or takes them again.
    pub(crate) fn set_open(&self, open: bool) {
        self.inner.closed.store(!open, Ordering::Relaxed);
    }

    /// Starts that wait or are under way.
    pub(crate) fn starting(&self) -> usize {
        self.inner.waiting.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, u32>> {
        self.inner.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.inner.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(count) = self.admission.lock().get_mut(&self.team) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(sandboxes: u32, starts: u32) -> Admission {
        Admission::new(Capacity { sandboxes, starts, patience: Duration::from_millis(50) })
    }

    #[test]
    fn a_dropped_slot_makes_room_for_its_own_team_only() {
        let admission = admission(10, 10);
        let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
        let first = admission.take(a, 1).unwrap();
        assert!(matches!(admission.take(a, 1), Err(Error::TooManySandboxes(1))));
        let _other = admission.take(b, 1).unwrap();
        drop(first);
        assert!(admission.take(a, 1).is_ok());
        assert!(admission.take(b, 1).is_err());
    }

    #[tokio::test]
    async fn a_full_host_lets_starts_wait_and_then_refuses_them() {
        let admission = admission(1, 1);
        let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
        let mut first = admission.reserve(a, 5).unwrap();
        drop(admission.wait_for_turn(&mut first).await.unwrap());
        assert!(matches!(admission.take(b, 5), Err(Error::NoRoom)));
        let mut second = admission.reserve(b, 5).unwrap();
        assert!(matches!(admission.wait_for_turn(&mut second).await, Err(Error::NoRoom)));
        let waiting = admission.wait_for_turn(&mut second);
        let leaving = async { drop(first) };
        assert!(tokio::join!(waiting, leaving).0.is_ok());
        assert_eq!(admission.starting(), 0);
    }

    #[tokio::test]
    async fn starts_wait_for_those_before_them() {
        let admission = admission(10, 1);
        let team = Uuid::new_v4();
        let mut first = admission.reserve(team, 5).unwrap();
        let mut second = admission.reserve(team, 5).unwrap();
        let turn = admission.wait_for_turn(&mut first).await.unwrap();
        assert!(matches!(admission.wait_for_turn(&mut second).await, Err(Error::PlacementTimeout)));
        assert_eq!(admission.starting(), 1);
        drop(turn);
        assert!(admission.wait_for_turn(&mut second).await.is_ok());
    }

    #[test]
    fn a_closed_door_lets_nobody_new_in() {
        let admission = admission(10, 10);
        admission.set_open(false);
        assert!(matches!(admission.reserve(Uuid::new_v4(), 5), Err(Error::Draining)));
        assert!(admission.take(Uuid::new_v4(), 5).is_ok());
        admission.set_open(true);
        assert!(admission.reserve(Uuid::new_v4(), 5).is_ok());
    }
}
