//! Logs and samples of sandboxes on their way to the store: every few seconds, at the end of a sandbox, and when the server
//! stops. A server that is killed loses the log of the last seconds and the samples of the last minute.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::samples::STEP_SECONDS;
use super::shared::{Entry, Shared};
use crate::store::Observed;
use crate::{Error, clock};

/// Sandboxes that are sampled at once.
const CONCURRENT_SAMPLES: usize = 16;
/// Samples that are stored together: those of a minute.
const BATCH: usize = 12;
/// Steps between two deletions of old logs and samples.
const DELETE_EVERY: u32 = 120;

/// Log entries and samples of removed sandboxes that may wait to be stored: some 20 MB.
const MAX_WAITING: usize = 100_000;
/// Weight of a removed sandbox of which nothing waits, in entries.
const BASE_WEIGHT: usize = 16;

/// Whether storing works, so that a failure is logged once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storing {
    /// Everything is stored.
    Works,
    /// Storing fails, and everything waits.
    Fails,
    /// Storing fails, and the oldest entries were dropped.
    Loses,
}

/// Samples the usage of sandboxes, and stores the samples and the logs, until the server stops.
pub(super) async fn watch(shared: Arc<Shared>) {
    let mut clock = tokio::time::interval(Duration::from_secs(STEP_SECONDS.unsigned_abs()));
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut steps = 0u32;
    let mut storing = Storing::Works;
    while shared.stopping.run_until_cancelled(clock.tick()).await.is_some() {
        stream::iter(shared.all()).for_each_concurrent(CONCURRENT_SAMPLES, take_sample).await;
        store(&shared, BATCH, &mut storing).await;
        if steps.is_multiple_of(DELETE_EVERY)
            && let Err(err) = shared.store.delete_old_observed().await
        {
            tracing::warn!(error = ?err, "old logs and samples were not removed");
        }
        steps = steps.wrapping_add(1);
    }
}

/// Stores what is not stored yet: all log entries, and the samples of sandboxes that have `min_samples` or are gone.
pub(super) async fn store(shared: &Shared, min_samples: usize, storing: &mut Storing) {
    let removed = shared.removed.all();
    let mut seen = Vec::new();
    let mut entries = Vec::new();
    for (entry, is_gone) in
        shared.all().iter().map(|one| (one, false)).chain(removed.iter().map(|one| (one, true)))
    {
        let logs = entry.log.pending();
        let mut samples = entry.samples.pending();
        if samples.len() < min_samples && !is_gone {
            samples.clear();
        }
        if !logs.is_empty() || !samples.is_empty() {
            let (team, sandbox) = (entry.details.team, entry.details.id.clone());
            seen.push(Observed { team, sandbox, logs, samples });
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
        entry.log.stored(seen.logs.len());
        entry.samples.stored(seen.samples.len());
    }
    shared.removed.forget(&removed);
}

/// Keeps what was not stored for the next attempt, within a bound.
fn failed(shared: &Shared, error: &Error, storing: &mut Storing) {
    if *storing == Storing::Works {
        tracing::warn!(?error, "logs and samples were not stored; the server tries again every few seconds");
        *storing = Storing::Fails;
    }
    let lost = shared
        .removed
        .shed(MAX_WAITING, |entry| BASE_WEIGHT + entry.log.pending().len() + entry.samples.pending().len());
    if lost > 0 {
        shared.telemetry.observed_lost(lost);
        if *storing == Storing::Fails {
            tracing::error!(
                "too many logs and samples wait to be stored: those of the sandboxes that were removed first are lost"
            );
            *storing = Storing::Loses;
        }
    }
}

/// Takes a sample of a sandbox that has none yet, so that a request before the first step finds one.
pub(super) async fn take_first(entry: &Arc<Entry>) {
    if entry.samples.latest().is_none() {
        take_sample(entry.clone()).await;
    }
}

async fn take_sample(entry: Arc<Entry>) {
    let view = entry.view();
    let Some(live) = view.live else { return };
    match live.handle.0.usage().await {
        Ok(usage) => entry.samples.push(clock::now(), view.session.started_at, &view.details.limits, &usage),
        Err(err) => tracing::debug!(sandbox_id = %view.details.id, error = ?err, "usage could not be read"),
    }
}
