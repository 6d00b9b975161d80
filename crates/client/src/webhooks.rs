//! Webhooks of a team, and the events that they deliver (contract: dashboard, sections 4 and 5).

use http::Method;
use sandcove_wire::api::event::{Deliveries, Delivery, NewWebhook, SandboxEvent, Webhook, WebhookUpdate};
use sandcove_wire::id::SandboxId;

use crate::error::Result;
use crate::server::{Client, segment};

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
        self.json(Method::GET, &format!("/events/webhooks/{}/deliveries", segment(id)), None::<&()>).await
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
        let of = id.map(|id| format!("/{id}")).unwrap_or_default();
        self.json(Method::GET, &format!("/events/sandboxes{of}?limit={limit}"), None::<&()>).await
    }
}
