//! Turns at calls of the API that only read, for each team. A team may ask for as many lists at once as its connections carry. If all were made at
//! once, they would be in memory together, and calls of other teams would wait behind them for a processor.

use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use crate::fair::TeamShares;

/// Maximum number of calls of one team that are answered at once.
const MAX_AT_ONCE: usize = 8;

/// The turns of all teams.
#[derive(Debug)]
pub(crate) struct Turns(TeamShares);

/// A turn, until it is dropped.
pub(crate) type Turn = OwnedSemaphorePermit;

impl Default for Turns {
    fn default() -> Self {
        Self(TeamShares::new(MAX_AT_ONCE))
    }
}

impl Turns {
    /// Waits for a turn of `team`, first come, first served. There is always one to come.
    pub(crate) async fn take(&self, team: Uuid) -> Option<Turn> {
        self.0.of(team).acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_team_waits_for_itself_and_for_no_other() {
        let turns = Turns::default();
        let mut taken = Vec::new();
        for _ in 0..MAX_AT_ONCE {
            taken.push(turns.take(Uuid::nil()).await.unwrap());
        }
        assert!(turns.take(Uuid::nil()).now_or_never().is_none());
        assert!(turns.take(Uuid::max()).now_or_never().is_some());
        taken.pop();
        assert!(turns.take(Uuid::nil()).now_or_never().is_some());
    }
}
