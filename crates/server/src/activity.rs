//! How busy teams are, looked at every few seconds and kept for a while (contract: control-plane, section 8).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use crate::sandboxes::Registry;
use crate::store::{Activity, Store};
use crate::{Result, clock};

/// Days that it is kept.
const DAYS: i64 = 8;
const DAY_SECONDS: i64 = 24 * 3600;

/// Writes down how busy each team is, every `step`, until it is dropped. Idle teams are not written about, but for the
/// first time they are found idle, so that a curve comes down again.
pub(crate) async fn watch(store: Store, sandboxes: Registry, step: Duration) {
    let mut clock = tokio::time::interval(step);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut since = clock::now();
    let mut were_busy = HashSet::new();
    loop {
        clock.tick().await;
        match look(&store, &sandboxes, since, &were_busy).await {
            Ok((now, busy)) => (since, were_busy) = (now, busy),
            Err(err) => tracing::warn!(error = ?err, "how busy teams are was not written down"),
        }
    }
}

async fn look(
    store: &Store,
    sandboxes: &Registry,
    since: Timestamp,
    were_busy: &HashSet<Uuid>,
) -> Result<(Timestamp, HashSet<Uuid>)> {
    let now = clock::now();
    let starts = store.starts_between(since, now).await?;
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
    Ok((now, busy))
}
