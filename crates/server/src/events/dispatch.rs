//! The dispatcher of stored deliveries: each webhook has a task that works through its deliveries in order, so that a slow
//! or absent receiver delays no other. Only so many deliveries are in progress at once; a team has a share of these, and teams take
//! turns at the rest, so that many slow receivers of one team delay no other team.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandcove_wire::api::event::Attempt;
use uuid::Uuid;

use super::deliver::{Receivers, deliver};
use crate::domain::webhook::MAX_RETRIES;
use crate::fair::{FairQueue, TeamShares};
use crate::outbound::Tls;
use crate::store::{DueDelivery, Store};
use crate::telemetry::{DeliveryResult, Telemetry};
use crate::{Result, clock};

/// Time between two attempts.
const RETRY_MICROS: i64 = 10 * 1_000_000;
/// Deliveries in progress at once, of all teams and of one.
const CONCURRENT_DELIVERIES: usize = 32;
const DELIVERIES_OF_TEAM: usize = 8;
/// Maximum pause when nothing is due.
const PAUSE: Duration = Duration::from_secs(1);
/// Rounds between two deletions of old events.
const DELETE_EVERY: u32 = 600;

/// The dispatcher of stored deliveries; clones share it.
#[derive(Clone)]
pub(super) struct Dispatcher {
    store: Store,
    receivers: Receivers,
    tls: Arc<Tls>,
    telemetry: Arc<Telemetry>,
    /// Webhooks whose task runs.
    busy: Arc<Mutex<HashSet<Uuid>>>,
    places: Arc<Places>,
}

/// The places for deliveries in progress.
struct Places {
    all: FairQueue,
    teams: TeamShares,
}

impl Places {
    fn new() -> Self {
        Self { all: FairQueue::new(CONCURRENT_DELIVERIES), teams: TeamShares::new(DELIVERIES_OF_TEAM) }
    }

    /// Runs a delivery of `team` when there is a place for it.
    async fn run<T>(&self, team: Uuid, delivery: impl Future<Output = T>) -> T {
        let of_team = self.teams.of(team);
        // Never closed.
        let _share = of_team.acquire().await;
        let (mut place, _) = self.all.enter(team);
        place.turn().await;
        delivery.await
    }
}

impl Dispatcher {
    pub(super) fn new(store: Store, receivers: Receivers, telemetry: Arc<Telemetry>) -> Self {
        let places = Arc::new(Places::new());
        Self { store, receivers, tls: Arc::default(), telemetry, busy: Arc::default(), places }
    }

    pub(super) async fn run(self) {
        let mut rounds = 0u32;
        loop {
            if rounds.is_multiple_of(DELETE_EVERY)
                && let Err(err) = self.store.delete_old_events().await
            {
                tracing::warn!(error = ?err, "old events were not removed");
            }
            rounds = rounds.wrapping_add(1);
            if let Err(err) = self.start_due().await {
                tracing::error!(error = ?err, "due deliveries could not be read");
            }
            // New events end the pause; a repeated attempt comes due by itself.
            let _ = tokio::time::timeout(PAUSE, self.store.new_deliveries()).await;
        }
    }

    async fn start_due(&self) -> Result<()> {
        for webhook in self.store.webhooks_due(clock::now()).await? {
            if self.busy.lock().unwrap_or_else(PoisonError::into_inner).insert(webhook) {
                let dispatcher = self.clone();
                tokio::spawn(async move {
                    if let Err(err) = dispatcher.deliver_all(webhook).await {
                        tracing::error!(webhook_id = %webhook, error = ?err, "deliveries stopped");
                    }
                    dispatcher.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&webhook);
                });
            }
        }
        Ok(())
    }

    /// Delivers to a webhook until nothing is due for it.
    async fn deliver_all(&self, webhook: Uuid) -> Result<()> {
        while let Some(due) = self.store.next_due(webhook, clock::now()).await? {
            let delivery = deliver(&due.webhook, &due.event, &self.receivers, &self.tls);
            let attempt = self.places.run(due.webhook.team, delivery).await;
            self.finish(&due, attempt).await?;
        }
        Ok(())
    }

    async fn finish(&self, due: &DueDelivery, attempt: Attempt) -> Result<()> {
        let delivered = attempt.error_class.is_none();
        self.telemetry.delivery_ended(match delivered {
            true => DeliveryResult::Delivered,
            false => DeliveryResult::Failed,
        });
        let again = (!delivered && due.attempt < MAX_RETRIES)
            .then(|| clock::from_micros(clock::now().as_microsecond() + RETRY_MICROS));
        self.store.finish_attempt(&attempt, again).await
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn slow_receivers_of_one_team_delay_no_other_team() {
        let places = Places::new();
        let (team, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut slow: Vec<_> = (0..50).map(|_| Box::pin(places.run(team, pending::<()>()))).collect();
        for delivery in &mut slow {
            assert!(delivery.now_or_never().is_none());
        }
        assert!(places.run(other, async {}).now_or_never().is_some());
        assert!(places.run(team, async {}).now_or_never().is_none(), "its share is used");
        drop(slow);
        assert!(places.run(team, async {}).now_or_never().is_some());
    }
}
