//! The order in which builds get their turn. Teams take turns: the next build is one of the team with the fewest builds in progress,
//! of those the one whose last build began first, and of that team's builds the one that has waited longest. So a team with a hundred
//! builds holds up nobody's first.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use uuid::Uuid;

/// The builds that wait and those in progress.
pub(super) struct Turns {
    /// Maximum number of builds in progress.
    slots: usize,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Waiting builds by number; the team of each.
    waiting: BTreeMap<u64, Uuid>,
    /// Number of builds in progress of each team that has one.
    running: HashMap<Uuid, usize>,
    /// When the last build of each team began, as a count of beginnings.
    began: HashMap<Uuid, u64>,
    beginnings: u64,
    next_number: u64,
}

/// The place of a build that waits or is in progress. Dropping it gives the place up.
pub(super) struct Place<'a> {
    turns: &'a Turns,
    team: Uuid,
    number: u64,
    has_begun: bool,
}

impl Turns {
    pub(super) fn new(slots: usize) -> Self {
        Self { slots, state: Mutex::default(), changed: Notify::new() }
    }

    /// Enters a build of `team`. The number is that of other builds that wait or are in progress, if this one has to wait.
    pub(super) fn enter(&self, team: Uuid) -> (Place<'_>, usize) {
        let mut state = self.state();
        let number = state.next_number;
        let others = state.waiting.len() + state.in_progress();
        state.next_number += 1;
        state.waiting.insert(number, team);
        let mut place = Place { turns: self, team, number, has_begun: false };
        let must_wait = !place.try_begin(&mut state);
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

    /// The number of the build that is to begin next.
    fn next(&self) -> Option<u64> {
        let rank = |(number, team): &(&u64, &Uuid)| {
            let of_team = |counts: &HashMap<Uuid, u64>| counts.get(*team).copied().unwrap_or_default();
            (self.running.get(*team).copied().unwrap_or_default(), of_team(&self.began), **number)
        };
        self.waiting.iter().min_by_key(rank).map(|(number, _)| *number)
    }
}

impl Place<'_> {
    /// Waits until the build may begin.
    pub(super) async fn turn(&mut self) {
        loop {
            let changed = self.turns.changed.notified();
            let has_begun = self.try_begin(&mut self.turns.state());
            if has_begun {
                return;
            }
            changed.await;
        }
    }

    fn try_begin(&mut self, state: &mut State) -> bool {
        if self.has_begun {
            return true;
        }
        if state.in_progress() >= self.turns.slots || state.next() != Some(self.number) {
            return false;
        }
        state.waiting.remove(&self.number);
        *state.running.entry(self.team).or_default() += 1;
        state.beginnings += 1;
        state.began.insert(self.team, state.beginnings);
        self.has_begun = true;
        // With several free slots, another build may begin too.
        self.turns.changed.notify_waiters();
        true
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.waiting.remove(&self.number);
        if self.has_begun
            && let Some(running) = state.running.get_mut(&self.team)
        {
            *running -= 1;
            if *running == 0 {
                state.running.remove(&self.team);
            }
        }
        self.turns.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn team(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    /// Enters builds of these teams, and returns the teams in the order of their beginnings, with one slot that each gives back.
    fn order(slots: usize, teams: &[u128]) -> Vec<u128> {
        let turns = Turns::new(slots);
        let mut places: Vec<_> = teams.iter().map(|&of| (of, turns.enter(team(of)).0)).collect();
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
    fn one_team_with_many_builds_holds_up_nobody() {
        assert_eq!(order(1, &[1, 1, 1, 1, 2, 3]), [1, 2, 3, 1, 1, 1]);
        assert_eq!(order(2, &[1, 1, 1, 1, 1, 2, 3]), [1, 1, 2, 3, 1, 1, 1]);
        assert_eq!(order(1, &[1, 1, 1, 2, 2, 2]), [1, 2, 1, 2, 1, 2]);
        assert_eq!(order(3, &[1, 2, 3]), [1, 2, 3]);
    }

    #[tokio::test]
    async fn a_build_that_gives_up_is_skipped() {
        let turns = Turns::new(1);
        let (mut first, others) = turns.enter(team(1));
        assert_eq!(others, 0, "there is a free slot");
        first.turn().await;
        let ((second, others), (mut third, more)) = (turns.enter(team(2)), turns.enter(team(3)));
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
