//! Webhooks of a team, and the events that they deliver (contract: dashboard, sections 4 and 5).

use http::Method;
use jiff::Timestamp;
use sandcove_wire::api::event::{
    Deliveries, Delivery, NewWebhook, SandboxEvent, Webhook, WebhookStats, WebhookUpdate,
};
use sandcove_wire::id::SandboxId;

use crate::error::Result;
use crate::query::pairs;
use crate::server::{Client, segment};

/// A filter for deliveries of a webhook; the default is the newest ones.
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    /// Earliest time of the first attempt.
    pub from: Option<Timestamp>,
    /// Latest time of the first attempt.
    pub to: Option<Timestamp>,
    /// Whether an attempt has succeeded; either when unset.
    pub is_success: Option<bool>,
    /// Event type, such as `sandbox.lifecycle.killed`; any when unset.
    pub event: Option<String>,
    /// Whether the oldest deliveries come first; else the newest do.
    pub is_oldest_first: bool,
    /// Maximum number of deliveries, 1 to 100; 25 when unset.
    pub limit: Option<u32>,
    /// The [`next_cursor`](Deliveries::next_cursor) of the page before; the first page when unset.
    pub cursor: Option<String>,
}

impl DeliveryFilter {
    fn query(&self) -> String {
        let status = |is_success| if is_success { "success" } else { "failed" }.to_owned();
        pairs(&[
            ("start", self.from.map(|time| time.to_string())),
            ("end", self.to.map(|time| time.to_string())),
            ("deliveryStatus", self.is_success.map(status)),
            ("eventType", self.event.clone()),
            ("orderAsc", Some(self.is_oldest_first.to_string())),
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("cursor", self.cursor.clone()),
        ])
    }
}

/// A filter for events of sandboxes; the default is the newest of the team.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// Sandbox of the events; any of the team when unset.
    pub sandbox: Option<SandboxId>,
    /// Types of events, such as `sandbox.lifecycle.killed`; any when empty.
    pub types: Vec<String>,
    /// Whether the oldest events come first; else the newest do.
    pub is_oldest_first: bool,
    /// Number of events to leave out before the first.
    pub offset: u64,
    /// Maximum number of events, 1 to 100; 10 when unset.
    pub limit: Option<u32>,
}

impl EventFilter {
    fn query(&self) -> String {
        pairs(&[
            ("types", Some(self.types.join(",")).filter(|types| !types.is_empty())),
            ("orderAsc", Some(self.is_oldest_first.to_string())),
            ("offset", Some(self.offset.to_string())),
            ("limit", self.limit.map(|limit| limit.to_string())),
        ])
    }
}

impl Client {
    /// The webhooks of the team.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn webhooks(&self) -> Result<Vec<Webhook>> {
        self.json(Method::GET, "/events/webhooks", None::<&()>).await
    }

    /// The webhook with this id.
    ///
    /// # Errors
    /// If the team has no such webhook.
    pub async fn webhook(&self, id: &str) -> Result<Webhook> {
        self.json(Method::GET, &format!("/events/webhooks/{}", segment(id)), None::<&()>).await
    }

    /// Creates a webhook.
    ///
    /// # Errors
    /// If the server refuses the URL, the events or the secret.
    pub async fn create_webhook(&self, new: &NewWebhook) -> Result<Webhook> {
        self.json(Method::POST, "/events/webhooks", Some(new)).await
    }

    /// Changes a webhook.
    ///
    /// # Errors
    /// If the server does not know the webhook, or refuses the change.
    pub async fn update_webhook(&self, id: &str, update: &WebhookUpdate) -> Result<Webhook> {
        self.json(Method::PATCH, &format!("/events/webhooks/{}", segment(id)), Some(update)).await
    }

    /// Deletes a webhook; false if there is none.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn delete_webhook(&self, id: &str) -> Result<bool> {
        self.delete(&format!("/events/webhooks/{}", segment(id))).await
    }

    /// The newest deliveries of a webhook, with all their attempts.
    ///
    /// # Errors
    /// If the server does not know the webhook.
    pub async fn deliveries(&self, id: &str) -> Result<Deliveries> {
        self.deliveries_where(id, &DeliveryFilter::default()).await
    }

    /// A page of the deliveries of a webhook that a filter matches, with all their attempts.
    ///
    /// # Errors
    /// If the server does not know the webhook, or refuses the filter.
    pub async fn deliveries_where(&self, id: &str, filter: &DeliveryFilter) -> Result<Deliveries> {
        let path = format!("/events/webhooks/{}/deliveries?{}", segment(id), filter.query());
        self.json(Method::GET, &path, None::<&()>).await
    }

    /// How many deliveries of a webhook were attempted and failed by hour, and how long they took, from `from` to `to`; by default in the last
    /// 24 hours.
    ///
    /// # Errors
    /// If the server does not know the webhook, or `from` is after `to`.
    pub async fn webhook_stats(
        &self,
        id: &str,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<WebhookStats> {
        let text = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let query = pairs(&[("start", text(from)), ("end", text(to))]);
        self.json(Method::GET, &format!("/events/webhooks/{}/stats?{query}", segment(id)), None::<&()>).await
    }

    /// Has an event delivered to a webhook again. The delivery is named by the id of one of its attempts, or of the event; the
    /// answer has the attempts before this one.
    ///
    /// # Errors
    /// If the server does not know the webhook or the delivery, or the webhook is disabled.
    pub async fn redeliver(&self, id: &str, delivery: &str) -> Result<Delivery> {
        let path = format!("/events/webhooks/{}/deliveries/{}/redeliver", segment(id), segment(delivery));
        self.json(Method::POST, &path, None::<&()>).await
    }

    /// The newest events of a sandbox, or of all sandboxes of the team; newest first, at most `limit`.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn events(&self, id: Option<&SandboxId>, limit: u32) -> Result<Vec<SandboxEvent>> {
        let filter = EventFilter { sandbox: id.cloned(), limit: Some(limit), ..EventFilter::default() };
        self.events_where(&filter).await
    }

    /// The events of sandboxes that a filter matches.
    ///
    /// # Errors
    /// If the server refuses the filter.
    pub async fn events_where(&self, filter: &EventFilter) -> Result<Vec<SandboxEvent>> {
        let of = filter.sandbox.as_ref().map(|id| format!("/{id}")).unwrap_or_default();
        self.json(Method::GET, &format!("/events/sandboxes{of}?{}", filter.query()), None::<&()>).await
    }
}
