//! The activity of teams, sampled every few seconds and kept for some days (contract: control-plane, section 8).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use crate::sandboxes::Registry;
use crate::store::{Activity, Store};
use crate::{Result, clock};

/// Days for which activity is kept.
const DAYS: i64 = 8;
const DAY_SECONDS: i64 = 24 * 3600;

/// Stores the activity of every team each `step`, until the task is dropped, from the event after `since` on. An idle team gets
/// a row only when it has just become idle, so that its curve comes down again.
pub(crate) async fn watch(store: Store, sandboxes: Registry, step: Duration, mut since: i64) {
    let mut clock = tokio::time::interval(step);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut were_busy = HashSet::new();
    loop {
        clock.tick().await;
        match sample(&store, &sandboxes, since, &were_busy).await {
            Ok((newest, busy)) => (since, were_busy) = (newest, busy),
            Err(err) => tracing::warn!(error = ?err, "the activity of teams was not stored"),
        }
    }
}

async fn sample(
    store: &Store,
    sandboxes: &Registry,
    since: i64,
    were_busy: &HashSet<Uuid>,
) -> Result<(i64, HashSet<Uuid>)> {
    let (now, newest) = (clock::now(), store.newest_event().await?);
    let starts = store.starts_between(since, newest).await?;
    let mut running: HashMap<Uuid, i64> = HashMap::new();
    for view in sandboxes.all_views().iter().filter(|view| !view.is_paused()) {
        *running.entry(view.details.team).or_default() += 1;
    }
    let mut busy = HashSet::new();
    let mut rows = Vec::new();
    for (team, starts) in starts {
        let concurrent = running.get(&team).copied().unwrap_or(0);
        let is_busy = concurrent > 0 || starts > 0;
        if is_busy {
            busy.insert(team);
        }
        if is_busy || were_busy.contains(&team) {
            rows.push((team, Activity { timestamp: now.as_second(), concurrent, starts }));
        }
    }
    store.insert_activity(&rows, now.as_second() - DAYS * DAY_SECONDS).await?;
    Ok((newest, busy))
}
