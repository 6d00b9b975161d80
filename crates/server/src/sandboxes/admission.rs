//! Admission control of starts. A team at its own limit is refused at once. When the host is full, starts wait in the order in which
//! they came, and when it is busy with other starts, teams take turns; both until a deadline.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use crate::fair::{FairPlace, FairQueue, TeamShares};
use crate::{Error, Result};

/// Time for which a start keeps others from beginning. One that takes longer mostly waits, as for the ready command of its template, which
/// the team chooses.
const MAX_TURN: Duration = Duration::from_secs(10);

/// The capacity of the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacity {
    /// Sandboxes that run at once, of all teams.
    pub(crate) sandboxes: u32,
    /// Starts in progress at once; more only slow each other down.
    pub(crate) starts: u32,
    /// Time that a start waits to be admitted.
    pub(crate) start_timeout: Duration,
    /// Memory that paused sandboxes may hold, of all teams, bytes.
    pub(crate) paused_bytes: u64,
    /// Time after which the memory of a paused sandbox goes to disk; never when unset.
    pub(crate) park_after: Option<Duration>,
}

/// Admission control; clones share their state.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    teams: Mutex<HashMap<Uuid, Counts>>,
    host: Arc<Semaphore>,
    starts: FairQueue,
    /// Starts in progress of each team, those that only wait included: as many as of all together that do not.
    team_starts: TeamShares,
    start_timeout: Duration,
    closed: AtomicBool,
    starting: AtomicUsize,
}

/// The sandboxes of a team that are counted.
#[derive(Debug, Default)]
struct Counts {
    running: u32,
    paused: u32,
}

/// The permit of one paused sandbox of a team; released when dropped.
#[derive(Debug)]
pub(super) struct PausedPermit {
    admission: Admission,
    team: Uuid,
}

/// The permit of one running sandbox of a team; released when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    admission: Admission,
    team: Uuid,
    /// The sandbox's share of the host's capacity, once it has one.
    host: Option<OwnedSemaphorePermit>,
}

/// The permit of one start in progress; released when dropped, so that the next start may begin.
#[derive(Debug)]
pub(super) struct StartPermit<'a> {
    /// Time until which the start may still wait for resources.
    pub(super) deadline: Instant,
    place: FairPlace<'a>,
    share: OwnedSemaphorePermit,
    starting: Starting,
}

impl StartPermit<'_> {
    /// Runs a start to its end. The next one may begin then, or one of another team when this one has taken its time.
    pub(super) async fn during<T>(self, start: impl Future<Output = T>) -> T {
        let Self { place, share: _share, starting: _starting, .. } = self;
        let mut start = pin!(start);
        if let Ok(ended) = timeout(MAX_TURN, &mut start).await {
            return ended;
        }
        drop(place);
        start.await
    }
}

/// Counts a start from its first wait to its end.
#[derive(Debug)]
struct Starting(Admission);

impl Admission {
    pub(super) fn new(capacity: Capacity) -> Self {
        let starts = capacity.starts.max(1) as usize;
        Self {
            inner: Arc::new(Inner {
                teams: Mutex::default(),
                host: Arc::new(Semaphore::new(capacity.sandboxes as usize)),
                starts: FairQueue::new(starts),
                team_starts: TeamShares::new(starts),
                start_timeout: capacity.start_timeout,
                closed: AtomicBool::new(false),
                starting: AtomicUsize::new(0),
            }),
        }
    }

    /// Counts one more sandbox of a team that may run `max` and have `max_paused` paused ones. The permit has no share of the
    /// host's capacity yet.
    pub(super) fn reserve(&self, team: Uuid, max: u32, max_paused: u32) -> Result<Permit> {
        if self.inner.closed.load(Ordering::Relaxed) {
            return Err(Error::Draining);
        }
        self.count(team, max, Some(max_paused))
    }

    fn count(&self, team: Uuid, max: u32, max_paused: Option<u32>) -> Result<Permit> {
        let mut teams = self.lock();
        let counts = teams.entry(team).or_default();
        if counts.running >= max {
            return Err(Error::TooManySandboxes(max));
        }
        // Sandboxes that were paused at the end of their session may be more than the team may have. They take the place of
        // running ones.
        if let Some(max_paused) = max_paused
            && counts.running.saturating_add(counts.paused) >= max.saturating_add(max_paused)
        {
            return Err(Error::TooManyPaused(max_paused));
        }
        counts.running += 1;
        drop(teams);
        Ok(Permit { admission: self.clone(), team, host: None })
    }

    /// A permit with a share of the host's capacity, or a refusal at once: for a paused sandbox that is to run again. Such a
    /// sandbox can run on no other host, so that it is admitted even when no new ones are.
    pub(super) fn take(&self, team: Uuid, max: u32) -> Result<Permit> {
        let mut permit = self.count(team, max, None)?;
        permit.host = Some(self.inner.host.clone().try_acquire_owned().map_err(|_| Error::HostFull)?);
        Ok(permit)
    }

    /// A permit for a sandbox that runs already, whatever the limits are now.
    pub(super) fn adopt(&self, team: Uuid) -> Permit {
        self.lock().entry(team).or_default().running += 1;
        Permit { admission: self.clone(), team, host: self.inner.host.clone().try_acquire_owned().ok() }
    }

    /// Counts one more paused sandbox of a team that may have `max`.
    pub(super) fn reserve_pause(&self, team: Uuid, max: u32) -> Result<PausedPermit> {
        let mut teams = self.lock();
        let counts = teams.entry(team).or_default();
        if counts.paused >= max {
            return Err(Error::TooManyPaused(max));
        }
        counts.paused += 1;
        drop(teams);
        Ok(PausedPermit { admission: self.clone(), team })
    }

    /// Counts one more paused sandbox, whatever the limits are: one whose session is over, or that was paused before.
    pub(super) fn adopt_pause(&self, team: Uuid) -> PausedPermit {
        self.lock().entry(team).or_default().paused += 1;
        PausedPermit { admission: self.clone(), team }
    }

    /// The number of a team's sandboxes that are paused or being paused.
    pub(super) fn paused(&self, team: Uuid) -> u32 {
        self.lock().get(&team).map_or(0, |counts| counts.paused)
    }

    /// Waits until the host has capacity for the sandbox of `permit` and its start may begin.
    pub(super) async fn wait_to_start(&self, permit: &mut Permit) -> Result<StartPermit<'_>> {
        let deadline = Instant::now() + self.inner.start_timeout;
        self.inner.starting.fetch_add(1, Ordering::Relaxed);
        let starting = Starting(self.clone());
        if permit.host.is_none() {
            let host = timeout_at(deadline, self.inner.host.clone().acquire_owned()).await;
            permit.host = Some(host.map_err(|_| Error::HostFull)?.map_err(|_| Error::ShuttingDown)?);
        }
        let share = timeout_at(deadline, self.inner.team_starts.of(permit.team).acquire_owned());
        let share = share.await.map_err(|_| Error::PlacementTimeout)?.map_err(|_| Error::ShuttingDown)?;
        let (mut place, _) = self.inner.starts.enter(permit.team);
        timeout_at(deadline, place.turn()).await.map_err(|_| Error::PlacementTimeout)?;
        Ok(StartPermit { deadline, place, share, starting })
    }

    /// Admits new sandboxes from now on, or no more.
    pub(crate) fn set_open(&self, open: bool) {
        self.inner.closed.store(!open, Ordering::Relaxed);
    }

    /// Starts that wait or are in progress.
    pub(crate) fn starting(&self) -> usize {
        self.inner.starting.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Counts>> {
        self.inner.teams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.inner.starting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(counts) = self.admission.lock().get_mut(&self.team) {
            counts.running = counts.running.saturating_sub(1);
        }
    }
}

impl Drop for PausedPermit {
    fn drop(&mut self) {
        if let Some(counts) = self.admission.lock().get_mut(&self.team) {
            counts.paused = counts.paused.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn admission(sandboxes: u32, starts: u32) -> Admission {
        Admission::new(Capacity {
            sandboxes,
            starts,
            start_timeout: Duration::from_millis(50),
            paused_bytes: 0,
            park_after: None,
        })
    }

    #[test]
    fn a_dropped_permit_makes_room_for_its_own_team_only() {
        let admission = admission(10, 10);
        let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
        let first = admission.take(a, 1).unwrap();
        assert!(matches!(admission.take(a, 1), Err(Error::TooManySandboxes(1))));
        let _other = admission.take(b, 1).unwrap();
        drop(first);
        assert!(admission.take(a, 1).is_ok());
        assert!(admission.take(b, 1).is_err());
    }

    #[test]
    fn paused_sandboxes_are_counted_for_each_team() {
        let admission = admission(10, 10);
        let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
        let first = admission.reserve_pause(a, 1).unwrap();
        assert!(matches!(admission.reserve_pause(a, 1), Err(Error::TooManyPaused(1))));
        let _other = admission.reserve_pause(b, 1).unwrap();
        let _expired = admission.adopt_pause(a);
        assert_eq!(admission.paused(a), 2);
        drop(first);
        assert!(admission.reserve_pause(a, 1).is_err());
        assert!(admission.reserve_pause(a, 2).is_ok());
        // Paused ones take no permit of running ones, unless they are too many.
        let _running = admission.reserve(a, 2, 1).unwrap();
        assert!(admission.reserve(a, 2, 1).is_ok());
        let _expired = admission.adopt_pause(a);
        assert!(matches!(admission.reserve(a, 2, 1), Err(Error::TooManyPaused(1))));
        assert!(admission.take(a, 2).is_ok());
    }

    #[tokio::test]
    async fn a_full_host_lets_starts_wait_and_then_refuses_them() {
        let admission = admission(1, 1);
        let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
        let mut first = admission.reserve(a, 5, 9).unwrap();
        drop(admission.wait_to_start(&mut first).await.unwrap());
        assert!(matches!(admission.take(b, 5), Err(Error::HostFull)));
        let mut second = admission.reserve(b, 5, 9).unwrap();
        assert!(matches!(admission.wait_to_start(&mut second).await, Err(Error::HostFull)));
        let waiting = admission.wait_to_start(&mut second);
        let leaving = async { drop(first) };
        assert!(tokio::join!(waiting, leaving).0.is_ok());
        assert_eq!(admission.starting(), 0);
    }

    #[tokio::test]
    async fn starts_wait_for_those_before_them() {
        let admission = admission(10, 1);
        let team = Uuid::new_v4();
        let mut first = admission.reserve(team, 5, 9).unwrap();
        let mut second = admission.reserve(team, 5, 9).unwrap();
        let start = admission.wait_to_start(&mut first).await.unwrap();
        assert!(matches!(admission.wait_to_start(&mut second).await, Err(Error::PlacementTimeout)));
        assert_eq!(admission.starting(), 1);
        drop(start);
        assert!(admission.wait_to_start(&mut second).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn starts_that_only_wait_hold_up_nobody() {
        let admission = admission(10, 2);
        let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
        let slow = async |team| {
            let mut permit = admission.reserve(team, 5, 9).unwrap();
            admission.wait_to_start(&mut permit).await.unwrap().during(std::future::pending::<()>()).await;
        };
        let waiting = async { tokio::join!(slow(a), slow(a)) };
        let other = async {
            let mut permit = admission.reserve(b, 5, 9).unwrap();
            assert!(matches!(admission.wait_to_start(&mut permit).await, Err(Error::PlacementTimeout)));
            tokio::time::sleep(MAX_TURN).await;
            assert_eq!(admission.starting(), 2, "they are counted to their end");
            admission.wait_to_start(&mut permit).await.unwrap();
            let mut third = admission.reserve(a, 5, 9).unwrap();
            assert!(
                admission.wait_to_start(&mut third).await.is_err(),
                "its team has as many starts in progress"
            );
        };
        tokio::select! {
            biased;
            _ = waiting => unreachable!("these starts never end"),
            () = other => {}
        }
    }

    #[tokio::test]
    async fn teams_take_turns_at_starts() {
        let admission = admission(10, 1);
        let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
        let mut permits = [a, a, b].map(|team| admission.reserve(team, 5, 9).unwrap());
        let [first, second, other] = &mut permits;
        let running = admission.wait_to_start(first).await.unwrap();
        let mut of_same = pin!(admission.wait_to_start(second));
        let mut of_other = pin!(admission.wait_to_start(other));
        assert!((&mut of_same).now_or_never().is_none() && (&mut of_other).now_or_never().is_none());
        drop(running);
        assert!((&mut of_same).now_or_never().is_none() && (&mut of_other).now_or_never().is_some());
    }

    #[test]
    fn a_draining_host_admits_no_new_sandbox() {
        let admission = admission(10, 10);
        admission.set_open(false);
        assert!(matches!(admission.reserve(Uuid::new_v4(), 5, 9), Err(Error::Draining)));
        assert!(admission.take(Uuid::new_v4(), 5).is_ok());
        admission.set_open(true);
        assert!(admission.reserve(Uuid::new_v4(), 5, 9).is_ok());
    }
}
