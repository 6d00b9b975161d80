//! Works through stored deliveries: each webhook's in order and by a task of its own, so that a receiver that is slow or
//! gone holds up nobody else's.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandcove_wire::api::event::Attempt;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::deliver::{Receivers, deliver};
use crate::outbound::Tls;
use crate::store::{Due, Store};
use crate::telemetry::{DeliveryResult, Telemetry};
use crate::{Result, clock};

/// Attempts after the first.
const RETRIES: i64 = 3;
/// Between two attempts.
const RETRY_MICROS: i64 = 10 * 1_000_000;
/// Receivers that are told at once.
const AT_ONCE: usize = 32;
/// How long to wait when nothing is due and nothing happens.
const PAUSE: Duration = Duration::from_secs(1);
/// How often old events are forgotten, in pauses.
const FORGET_EVERY: u32 = 600;

#[derive(Clone)]
pub(super) struct Dispatcher {
    store: Store,
    receivers: Receivers,
    tls: Arc<Tls>,
    telemetry: Arc<Telemetry>,
    /// Webhooks that are being worked for.
    busy: Arc<Mutex<HashSet<Uuid>>>,
    permits: Arc<Semaphore>,
}

impl Dispatcher {
    pub(super) fn new(store: Store, receivers: Receivers, telemetry: Arc<Telemetry>) -> Self {
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        Self { store, receivers, tls: Arc::default(), telemetry, busy: Arc::default(), permits }
    }

    pub(super) async fn run(self) {
        let mut rounds = 0u32;
        loop {
            if rounds.is_multiple_of(FORGET_EVERY)
                && let Err(err) = self.store.forget_old_events().await
            {
                tracing::warn!(error = ?err, "old events were not removed");
            }
            rounds = rounds.wrapping_add(1);
            if let Err(err) = self.begin_what_is_due().await {
                tracing::error!(error = ?err, "due deliveries could not be read");
            }
            // Told by new events; what is to be tried again comes due by itself.
            let _ = tokio::time::timeout(PAUSE, self.store.news()).await;
        }
    }

    async fn begin_what_is_due(&self) -> Result<()> {
        for webhook in self.store.webhooks_due(clock::now()).await? {
            if self.busy.lock().unwrap_or_else(PoisonError::into_inner).insert(webhook) {
                let dispatcher = self.clone();
                tokio::spawn(async move {
                    if let Err(err) = dispatcher.work_for(webhook).await {
                        tracing::error!(webhook_id = %webhook, error = ?err, "deliveries stopped");
                    }
                    dispatcher.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&webhook);
                });
            }
        }
        Ok(())
    }

    /// One delivery after the other, until none is due.
    async fn work_for(&self, webhook: Uuid) -> Result<()> {
        while let Some(due) = self.store.next_due(webhook, clock::now()).await? {
            let Ok(_permit) = self.permits.acquire().await else { return Ok(()) };
            let attempt = deliver(&due.webhook, &due.event, self.receivers, &self.tls).await;
            self.finish(&due, attempt).await?;
        }
        Ok(())
    }

    async fn finish(&self, due: &Due, attempt: Attempt) -> Result<()> {
        let delivered = attempt.error_class.is_none();
        self.telemetry.delivery_ended(match delivered {
            true => DeliveryResult::Delivered,
            false => DeliveryResult::Failed,
        });
        let again = (!delivered && due.attempt < RETRIES)
            .then(|| clock::from_micros(clock::now().as_microsecond() + RETRY_MICROS));
        self.store.finish_attempt(&attempt, again).await
    }
}
