//! The priority of a warm process whose template a team has written: the lowest, except while clients wait for the process. With the
//! lowest one it would not run at all while other sandboxes keep the processors busy, and the clients' sandboxes with it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Result;
use crate::cgroup::Cgroups;

/// The priority of one warm process.
#[derive(Debug, Default)]
pub(super) struct WarmPriority(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Slot of the process, while it exists and may have the lowest priority.
    slot: Option<u32>,
    /// Number of clients that wait for the process.
    waiting: usize,
}

/// A slot, and whether its group is to have the lowest priority.
type Change = (u32, bool);

impl State {
    fn begin(&mut self, slot: u32) -> Change {
        self.slot = Some(slot);
        (slot, self.waiting == 0)
    }

    fn add_client(&mut self) -> Option<Change> {
        self.waiting += 1;
        self.slot.filter(|_| self.waiting == 1).map(|slot| (slot, false))
    }

    fn remove_client(&mut self) -> Option<Change> {
        self.waiting = self.waiting.saturating_sub(1);
        self.slot.filter(|_| self.waiting == 0).map(|slot| (slot, true))
    }
}

/// Guard of a client's wait for a warm process, which has the usual priority meanwhile.
pub(super) struct Raised<'a> {
    priority: Arc<WarmPriority>,
    cgroups: &'a Cgroups,
}

impl WarmPriority {
    /// Manages the priority of the process in `slot` from now on.
    pub(super) fn begin(&self, cgroups: &Cgroups, slot: u32) -> Result<()> {
        let mut state = self.state();
        let (slot, is_low) = state.begin(slot);
        cgroups.set_low_priority(slot, is_low)
    }

    /// Leaves the slot alone from now on: it may soon be that of another sandbox.
    pub(super) fn end(&self) {
        self.state().slot = None;
    }

    /// Gives the process the usual priority for as long as the guard exists.
    pub(super) fn raise<'a>(self: &Arc<Self>, cgroups: &'a Cgroups) -> Raised<'a> {
        let mut state = self.state();
        apply(cgroups, state.add_client());
        Raised { priority: self.clone(), cgroups }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        let mut state = self.priority.state();
        apply(self.cgroups, state.remove_client());
    }
}

/// Applies a change under the lock of the state, so that the last change is the last one applied. Without it the process is slow, and
/// works all the same.
fn apply(cgroups: &Cgroups, change: Option<Change>) {
    let Some((slot, is_low)) = change else { return };
    if let Err(error) = cgroups.set_low_priority(slot, is_low) {
        tracing::debug!(slot, error = &error as &dyn std::error::Error, "failed to change a priority");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_priority_is_raised_while_anybody_waits() {
        let mut state = State::default();
        assert_eq!(state.begin(7), (7, true));
        assert_eq!(state.add_client(), Some((7, false)));
        assert_eq!((state.add_client(), state.remove_client()), (None, None));
        assert_eq!(state.remove_client(), Some((7, true)));
    }

    #[test]
    fn a_process_that_is_waited_for_begins_with_the_usual_priority() {
        let mut state = State::default();
        assert_eq!(state.add_client(), None);
        assert_eq!(state.begin(7), (7, false));
        assert_eq!(state.remove_client(), Some((7, true)));
    }

    #[test]
    fn a_slot_that_was_given_back_is_left_alone() {
        let priority = WarmPriority::default();
        priority.state().begin(7);
        assert_eq!(priority.state().add_client(), Some((7, false)));
        priority.end();
        assert_eq!(priority.state().remove_client(), None);
    }
}
