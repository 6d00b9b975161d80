//! Turns at what a team may do a few times at once. It may ask for as many lists, and keep open as many uploads and exports of
//! templates, as its connections carry. If all lists were made at once, they would be in memory together, and calls of other teams would wait
//! behind them for a processor; and uploads and exports have places that all teams share.

use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use crate::fair::TeamShares;
use crate::{Error, Result};

/// Maximum number of calls of one team that are answered at once.
pub(super) const READS: usize = 8;
/// Maximum number of files that one team uploads at once, to volumes and for builds.
pub(crate) const UPLOADS: usize = 64;
/// Time for which an upload waits for a turn, and may stand still.
pub(crate) const UPLOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of templates that one team exports at once.
pub(crate) const EXPORTS: usize = 8;

/// The turns of all teams.
#[derive(Debug)]
pub(crate) struct Turns(TeamShares);

/// A turn, until it is dropped.
pub(crate) type Turn = OwnedSemaphorePermit;

impl Turns {
    /// Turns, of which each team may have this many at once.
    pub(super) fn new(at_once: usize) -> Self {
        Self(TeamShares::new(at_once))
    }

    /// Takes a turn of `team`, if one is free.
    pub(crate) fn try_take(&self, team: Uuid) -> Option<Turn> {
        self.0.of(team).try_acquire_owned().ok()
    }

    /// Waits for a turn of `team` at uploads, but no longer than a client waits.
    ///
    /// # Errors
    /// If no turn came: [`Error::TooManyAtOnce`].
    pub(crate) async fn take_upload(&self, team: Uuid) -> Result<Option<Turn>> {
        let turn = tokio::time::timeout(UPLOAD_TIMEOUT, self.take(team)).await;
        turn.map_err(|_| Error::TooManyAtOnce { max: UPLOADS, what: "uploads" })
    }

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
        let turns = Turns::new(8);
        let mut taken = Vec::new();
        for _ in 0..8 {
            taken.push(turns.take(Uuid::nil()).await.unwrap());
        }
        assert!(turns.take(Uuid::nil()).now_or_never().is_none());
        assert!(turns.take(Uuid::max()).now_or_never().is_some());
        taken.pop();
        assert!(turns.take(Uuid::nil()).now_or_never().is_some());
    }
}
