//! Lifecycle events and webhooks (contract: dashboard, sections 4 and 5).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::secret::Secret;

/// A lifecycle event of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxEvent {
    /// Id of the event; UUID.
    pub id: String,
    /// Version of this format.
    pub version: String,
    /// Event type, e.g. `sandbox.lifecycle.created`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Time of the event.
    pub timestamp: Timestamp,
    /// Older name for the first half of the type.
    pub event_category: String,
    /// Older name for the second half of the type.
    pub event_label: String,
    /// Details, which depend on the type.
    pub event_data: Option<Value>,
    /// Id of the sandbox.
    pub sandbox_id: String,
    /// Id of the session of the sandbox; UUID.
    pub sandbox_execution_id: String,
    /// Id of the template of the sandbox.
    pub sandbox_template_id: String,
    /// Id of the build of the sandbox; UUID.
    pub sandbox_build_id: String,
    /// Id of the team of the sandbox; UUID.
    pub sandbox_team_id: String,
}

/// Body of `POST /events/webhooks`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewWebhook {
    /// Display name.
    pub name: String,
    /// URL that events are sent to.
    pub url: String,
    /// Event types that are sent.
    pub events: Vec<String>,
    /// Secret that signs deliveries.
    pub signature_secret: Secret,
    /// Whether events are sent; true when absent.
    #[serde(default = "yes")]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}

/// Body of `PATCH /events/webhooks/{id}`; absent members are not changed.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WebhookUpdate {
    /// Display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// URL that events are sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Event types that are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<String>>,
    /// Secret that signs deliveries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature_secret: Option<Secret>,
    /// Whether events are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// A webhook, without its secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Id of the webhook; UUID.
    pub id: String,
    /// Id of the team of the webhook; UUID.
    pub team_id: String,
    /// Display name.
    pub name: String,
    /// Time of creation.
    pub created_at: Timestamp,
    /// URL that events are sent to.
    pub url: String,
    /// Whether events are sent.
    pub enabled: bool,
    /// Event types that are sent.
    pub events: Vec<String>,
}

/// A page of deliveries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deliveries {
    /// Deliveries, one for each event.
    pub data: Vec<Delivery>,
    /// Cursor of the next page; none on the last page.
    pub next_cursor: Option<String>,
}

/// The delivery of an event to a webhook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// Id of the event; UUID.
    pub event_id: String,
    /// Event type.
    pub event_type: String,
    /// Id of the sandbox.
    pub sandbox_id: String,
    /// Attempts, the oldest first.
    pub attempts: Vec<Attempt>,
}

/// An attempt to deliver an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Id of the attempt; UUID.
    pub id: String,
    /// Id of the team of the webhook; UUID.
    pub team_id: String,
    /// Id of the webhook; UUID.
    pub webhook_id: String,
    /// Id of the event; UUID.
    pub event_id: String,
    /// Id of the sandbox.
    pub sandbox_id: String,
    /// Event type.
    pub event_type: String,
    /// Outcome: `success` or `failed`.
    pub status: String,
    /// Duration, in milliseconds.
    pub duration_ms: i64,
    /// Body of the request.
    pub request_body: String,
    /// Headers of the request as JSON text, without the signature.
    pub request_headers: String,
    /// URL of the request.
    pub request_url: String,
    /// Start of the body of the answer; none without an answer.
    pub response_body: Option<String>,
    /// Headers of the answer as JSON text; none without an answer.
    pub response_headers: Option<String>,
    /// Status of the answer; none without an answer.
    pub response_http_status_code: Option<u16>,
    /// Kind of failure.
    pub error_class: Option<String>,
    /// Description of the failure.
    pub error_message: Option<String>,
    /// Start of the attempt.
    pub timestamp: Timestamp,
}

/// Answer of `GET …/stats`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookStats {
    /// Attempts by hour, the oldest first; hours without attempts are left out.
    pub buckets: Vec<StatsBucket>,
    /// Number of attempts.
    pub total: i64,
    /// Number of failed attempts.
    pub failed: i64,
    /// Durations of attempts.
    pub duration_ms: Durations,
}

/// The attempts of an hour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatsBucket {
    /// Start of the hour.
    pub timestamp: Timestamp,
    /// Number of attempts.
    pub total: i64,
    /// Number of failed attempts.
    pub failed: i64,
    /// Average duration, in milliseconds.
    pub duration_ms: f64,
}

/// Durations of attempts, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Durations {
    /// Shortest duration.
    pub minimum: i64,
    /// Average duration.
    pub average: f64,
    /// Maximum duration.
    pub maximum: i64,
}
