//! What is seen of sandboxes, on its way to the store: every few seconds, and at the end of a sandbox and of the server. A
//! server that is killed has lost the log of the last seconds and the readings of the last minute.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use sandcove_wire::api::observe::{LogEntry, SandboxMetric};
use sandcove_wire::id::SandboxId;

use super::registry::{Entry, Registry, Shared};
use super::series::{STEP_SECONDS, thinned};
use crate::store::Observed;
use crate::teams::Team;
use crate::{Error, Result, clock};

/// Sandboxes whose usage is read at once.
const READERS: usize = 16;
/// Readings that are stored together: those of a minute.
const TOGETHER: usize = 12;
/// How often what is old is forgotten, in steps.
const FORGET_EVERY: u32 = 120;

/// Entries and readings of sandboxes that are gone which may wait to be stored: some 20 MB.
const MOST_WAITING: usize = 100_000;
/// What is held for a sandbox that is gone even when nothing of it waits, in entries.
const BASE_WEIGHT: usize = 16;

/// How storing goes, so that trouble is said once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storing {
    Works,
    /// All of it waits.
    Fails,
    /// It waits, but for the oldest, which are lost.
    Loses,
}

/// Reads what sandboxes use, and stores that and their logs, until the server stops.
pub(super) async fn watch(shared: Arc<Shared>) {
    let mut clock = tokio::time::interval(Duration::from_secs(STEP_SECONDS.unsigned_abs()));
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut steps = 0u32;
    let mut storing = Storing::Works;
    while shared.stopping.run_until_cancelled(clock.tick()).await.is_some() {
        stream::iter(shared.all()).for_each_concurrent(READERS, take_reading).await;
        store(&shared, TOGETHER, &mut storing).await;
        if steps.is_multiple_of(FORGET_EVERY)
            && let Err(err) = shared.store.forget_observed().await
        {
            tracing::warn!(error = ?err, "old logs and readings were not removed");
        }
        steps = steps.wrapping_add(1);
    }
}

/// Stores what is not stored yet: all log entries, and readings where there are `least` of them or will be no more.
pub(super) async fn store(shared: &Shared, least: usize, storing: &mut Storing) {
    let departed = shared.departed.all();
    let mut seen = Vec::new();
    let mut entries = Vec::new();
    for (entry, is_gone) in
        shared.all().iter().map(|one| (one, false)).chain(departed.iter().map(|one| (one, true)))
    {
        let logs = entry.journal.pending();
        let mut readings = entry.series.pending();
        if readings.len() < least && !is_gone {
            readings.clear();
        }
        if !logs.is_empty() || !readings.is_empty() {
            let (team, sandbox) = (entry.details.team, entry.details.id.clone());
            seen.push(Observed { team, sandbox, logs, readings });
            entries.push(entry.clone());
        }
    }
    if !seen.is_empty()
        && let Err(err) = shared.store.insert_observed(&seen).await
    {
        failed(shared, &err, storing);
        return;
    }
    *storing = Storing::Works;
    for (entry, seen) in entries.iter().zip(&seen) {
        entry.journal.stored(seen.logs.len());
        entry.series.stored(seen.readings.len());
    }
    shared.departed.forget(&departed);
}

/// What waits is tried again with what comes, within a bound.
fn failed(shared: &Shared, error: &Error, storing: &mut Storing) {
    if *storing == Storing::Works {
        tracing::warn!(
            ?error,
            "logs and readings were not stored: they wait, and are tried again every few seconds"
        );
        *storing = Storing::Fails;
    }
    let lost = shared.departed.shed(MOST_WAITING, |entry| {
        BASE_WEIGHT + entry.journal.pending().len() + entry.series.pending().len()
    });
    if lost > 0 {
        shared.telemetry.observed_lost(lost);
        if *storing == Storing::Fails {
            tracing::error!(
                "too many logs and readings wait to be stored: those of the sandboxes that went first are lost"
            );
            *storing = Storing::Loses;
        }
    }
}

/// A sandbox that is asked about before its first turn has a reading, too.
async fn take_first(entry: &Arc<Entry>) {
    if entry.series.latest().is_none() {
        take_reading(entry.clone()).await;
    }
}

async fn take_reading(entry: Arc<Entry>) {
    let view = entry.view();
    let Some(live) = view.live else { return };
    match live.handle.0.usage().await {
        Ok(usage) => entry.series.push(clock::now(), view.session.started_at, &view.details.limits, &usage),
        Err(err) => tracing::debug!(sandbox_id = %view.details.id, error = ?err, "usage could not be read"),
    }
}

impl Registry {
    /// The log of a sandbox of the team, also of one that is gone; oldest first.
    pub(crate) async fn log(&self, team: &Team, id: &SandboxId) -> Result<Vec<LogEntry>> {
        // In this order, what is being stored is in both rather than in neither.
        let pending = self.seen(team, id).map(|entry| entry.journal.pending()).unwrap_or_default();
        let mut entries = self.shared.store.log_entries(team.id, id).await?;
        let newest = entries.len().saturating_sub(pending.len());
        let new: Vec<LogEntry> = pending.into_iter().filter(|one| !entries[newest..].contains(one)).collect();
        entries.extend(new);
        Ok(entries)
    }

    /// Readings of a sandbox of the team, also of one that is gone, within `start..=end` (Unix seconds) and thinned to the
    /// documented step of that span.
    pub(crate) async fn readings(
        &self,
        team: &Team,
        id: &SandboxId,
        start: Option<i64>,
        end: Option<i64>,
    ) -> Result<Vec<SandboxMetric>> {
        let entry = self.seen(team, id);
        if let Some(entry) = &entry {
            take_first(entry).await;
        }
        let pending = entry.map(|entry| entry.series.pending()).unwrap_or_default();
        let mut readings = self.shared.store.readings(team.id, id, start.unwrap_or(0)).await?;
        let last = readings.last().map(|reading| reading.timestamp);
        readings
            .extend(pending.into_iter().filter(|reading| last.is_none_or(|last| reading.timestamp > last)));
        Ok(thinned(readings, start, end))
    }

    /// The newest reading of a sandbox of the team that is there.
    pub(crate) async fn latest_reading(&self, team: &Team, id: &SandboxId) -> Option<SandboxMetric> {
        let entry = self.entry(team, id).ok()?;
        take_first(&entry).await;
        entry.series.latest()
    }

    fn seen(&self, team: &Team, id: &SandboxId) -> Option<Arc<Entry>> {
        let departed = || self.shared.departed.all().into_iter().find(|entry| entry.details.id == *id);
        self.find(id).or_else(departed).filter(|entry| entry.details.team == team.id)
    }
}
