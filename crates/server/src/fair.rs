//! The means to keep one team from taking everything: a share for each team, and a queue in which teams take turns. The next to begin
//! there is one of the team with the fewest in progress, of those the one whose last began first, and of that team's the one that has
//! waited longest. So a team that asks for a hundred holds up nobody's first.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

/// A semaphore for each team.
#[derive(Debug)]
pub(crate) struct TeamShares {
    permits: usize,
    teams: Mutex<HashMap<Uuid, Arc<Semaphore>>>,
}

impl TeamShares {
    /// Shares of so many permits.
    pub(crate) fn new(permits: usize) -> Self {
        Self { permits, teams: Mutex::default() }
    }

    /// The semaphore of `team`.
    pub(crate) fn of(&self, team: Uuid) -> Arc<Semaphore> {
        let mut teams = self.teams.lock().unwrap_or_else(PoisonError::into_inner);
        if !teams.contains_key(&team) {
            // Those that nobody uses.
            teams.retain(|_, share| Arc::strong_count(share) > 1);
        }
        teams.entry(team).or_insert_with(|| Arc::new(Semaphore::new(self.permits))).clone()
    }
}

/// Work of teams that waits, and that is in progress.
#[derive(Debug)]
pub(crate) struct FairQueue {
    /// Maximum number of places in progress.
    slots: usize,
    /// Maximum number of those of one team.
    of_team: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Places that wait, by number.
    waiting: BTreeMap<u64, Waiting>,
    /// Number of places in progress of each team that has one.
    running: HashMap<Uuid, usize>,
    /// Number of the beginning at which the last place of each team began, counted over all teams.
    began: HashMap<Uuid, u64>,
    beginnings: u64,
    next_number: u64,
}

#[derive(Debug)]
struct Waiting {
    team: Uuid,
    begin: oneshot::Sender<()>,
}

/// A place that waits or is in progress, until this is dropped.
#[derive(Debug)]
pub(crate) struct FairPlace<'a> {
    queue: &'a FairQueue,
    team: Uuid,
    number: u64,
    /// The signal to begin, until it was awaited.
    begin: Option<oneshot::Receiver<()>>,
}

impl FairQueue {
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots, of_team: slots, state: Mutex::default() }
    }

    /// A queue with at least four slots, of which one team has three quarters at most, so that there is one for others however long its work
    /// takes; one with fewer leaves them to whoever comes.
    pub(crate) fn with_room_for_others(slots: usize) -> Self {
        Self { of_team: slots - slots / 4, ..Self::new(slots) }
    }

    /// Enters work of `team`. The number is that of other places that wait or are in progress, if this one has to wait.
    pub(crate) fn enter(&self, team: Uuid) -> (FairPlace<'_>, usize) {
        let (begin, signal) = oneshot::channel();
        let mut state = self.state();
        let number = state.next_number;
        let others = state.waiting.len() + state.in_progress();
        state.next_number += 1;
        state.waiting.insert(number, Waiting { team, begin });
        state.begin_next(self);
        let must_wait = state.waiting.contains_key(&number);
        let place = FairPlace { queue: self, team, number, begin: Some(signal) };
        (place, if must_wait { others } else { 0 })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn in_progress(&self) -> usize {
        self.running.values().sum()
    }

    /// The number of the place that is to begin next, of a team with fewer than `of_team` in progress.
    fn next(&self, of_team: usize) -> Option<u64> {
        let running = |waiting: &Waiting| self.running.get(&waiting.team).copied().unwrap_or_default();
        let rank = |(number, waiting): &(&u64, &Waiting)| {
            let began = self.began.get(&waiting.team).copied().unwrap_or_default();
            (running(waiting), began, **number)
        };
        let ready = self.waiting.iter().filter(|(_, waiting)| running(waiting) < of_team);
        ready.min_by_key(rank).map(|(number, _)| *number)
    }

    /// Begins as many places as there are slots for.
    fn begin_next(&mut self, queue: &FairQueue) {
        while self.in_progress() < queue.slots
            && let Some(next) = self.next(queue.of_team).and_then(|number| self.waiting.remove(&number))
        {
            *self.running.entry(next.team).or_default() += 1;
            self.beginnings += 1;
            self.began.insert(next.team, self.beginnings);
            // A place that is being dropped waits for the lock, and gives its slot back then.
            let _ = next.begin.send(());
        }
    }
}

impl FairPlace<'_> {
    /// Waits until the work may begin.
    pub(crate) async fn turn(&mut self) {
        if let Some(begin) = &mut self.begin {
            // The sender is in the queue until it has sent.
            let _ = begin.await;
            self.begin = None;
        }
    }
}

impl Drop for FairPlace<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        let has_begun = state.waiting.remove(&self.number).is_none();
        if has_begun && let Some(running) = state.running.get_mut(&self.team) {
            *running -= 1;
            if *running == 0 {
                state.running.remove(&self.team);
            }
        }
        state.begin_next(self.queue);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn team(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    /// Enters work of these teams, and requeue the teams in the order of their beginnings, with one slot that each gives back.
    fn order(slots: usize, teams: &[u128]) -> Vec<u128> {
        let queue = FairQueue::new(slots);
        let mut places: Vec<_> = teams.iter().map(|&of| (of, queue.enter(team(of)).0)).collect();
        let (mut order, mut in_progress) = (Vec::new(), Vec::new());
        while !places.is_empty() || !in_progress.is_empty() {
            while let Some(index) =
                places.iter_mut().position(|(_, place)| place.turn().now_or_never().is_some())
            {
                let begun = places.remove(index);
                order.push(begun.0);
                in_progress.push(begun);
            }
            assert!(!in_progress.is_empty() && in_progress.len() <= slots);
            drop(in_progress.remove(0));
        }
        order
    }

    #[test]
    fn one_team_that_asks_for_much_holds_up_nobody() {
        assert_eq!(order(1, &[1, 1, 1, 1, 2, 3]), [1, 2, 3, 1, 1, 1]);
        assert_eq!(order(2, &[1, 1, 1, 1, 1, 2, 3]), [1, 1, 2, 3, 1, 1, 1]);
        assert_eq!(order(1, &[1, 1, 1, 2, 2, 2]), [1, 2, 1, 2, 1, 2]);
        assert_eq!(order(3, &[1, 2, 3]), [1, 2, 3]);
    }

    #[test]
    fn a_slot_is_left_for_others() {
        for (slots, of_team) in [(1, 1), (2, 2), (4, 3), (8, 6)] {
            let queue = FairQueue::with_room_for_others(slots);
            let mut own: Vec<_> = (0..slots + 2).map(|_| queue.enter(team(1)).0).collect();
            let begun = own.iter_mut().filter_map(|place| place.turn().now_or_never()).count();
            assert_eq!(begun, of_team, "of {slots}");
            let mut other = queue.enter(team(2)).0;
            assert_eq!(other.turn().now_or_never().is_some(), of_team < slots);
        }
    }

    #[tokio::test]
    async fn a_place_that_is_given_up_is_skipped() {
        let queue = FairQueue::new(1);
        let (mut first, others) = queue.enter(team(1));
        assert_eq!(others, 0, "there is a free slot");
        first.turn().await;
        let ((second, others), (mut third, more)) = (queue.enter(team(2)), queue.enter(team(3)));
        assert_eq!((others, more), (1, 2));
        assert!(third.turn().now_or_never().is_none());
        drop(second);
        assert!(third.turn().now_or_never().is_none());
        let wait = async {
            third.turn().await;
        };
        tokio::join!(wait, async { drop(first) });
    }
}
