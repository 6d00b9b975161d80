//! How many sandboxes each team runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

/// Counts of running sandboxes by team.
#[derive(Debug, Clone, Default)]
pub(super) struct Quota {
    running: Arc<Mutex<HashMap<Uuid, u32>>>,
}

/// One running sandbox of a team; dropping it makes room.
#[derive(Debug)]
pub(super) struct Slot {
    quota: Quota,
    team: Uuid,
}

impl Quota {
    /// A slot, unless the team holds `most` already.
    pub(super) fn take(&self, team: Uuid, most: u32) -> Option<Slot> {
        let mut running = self.lock();
        let count = running.entry(team).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Slot { quota: self.clone(), team })
    }

    /// A slot for a sandbox that runs already, whatever the limit is now.
    pub(super) fn adopt(&self, team: Uuid) -> Slot {
        *self.lock().entry(team).or_default() += 1;
        Slot { quota: self.clone(), team }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, u32>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(count) = self.quota.lock().get_mut(&self.team) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_slot_makes_room_for_its_own_team_only() {
        let quota = Quota::default();
        let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
        let first = quota.take(a, 1).unwrap();
        assert!(quota.take(a, 1).is_none());
        let _other = quota.take(b, 1).unwrap();
        drop(first);
        assert!(quota.take(a, 1).is_some());
        assert!(quota.take(b, 1).is_none());
    }
}
