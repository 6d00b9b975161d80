//! The dispatcher of stored deliveries: each webhook has a task that works through its deliveries in order, so that a slow
//! or absent receiver delays no other.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandcove_wire::api::event::Attempt;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::deliver::{Receivers, deliver};
use crate::domain::webhook::MAX_RETRIES;
use crate::outbound::Tls;
use crate::store::{DueDelivery, Store};
use crate::telemetry::{DeliveryResult, Telemetry};
use crate::{Result, clock};

/// Time between two attempts.
const RETRY_MICROS: i64 = 10 * 1_000_000;
/// Deliveries in progress at once.
const CONCURRENT_DELIVERIES: usize = 32;
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
    permits: Arc<Semaphore>,
}

impl Dispatcher {
    pub(super) fn new(store: Store, receivers: Receivers, telemetry: Arc<Telemetry>) -> Self {
        let permits = Arc::new(Semaphore::new(CONCURRENT_DELIVERIES));
        Self { store, receivers, tls: Arc::default(), telemetry, busy: Arc::default(), permits }
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
            let Ok(_permit) = self.permits.acquire().await else { return Ok(()) };
            let attempt = deliver(&due.webhook, &due.event, &self.receivers, &self.tls).await;
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
