//! Lifecycle events and webhooks (contract: dashboard, sections 4 and 5).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::secret::Secret;

/// Something that happened to a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxEvent {
    /// UUID.
    pub id: String,
    /// Of this form.
    pub version: String,
    /// E.g. `sandbox.lifecycle.created`.
    #[serde(rename = "type")]
    pub kind: String,
    /// When.
    pub timestamp: Timestamp,
    /// Older name for the first half of the type.
    pub event_category: String,
    /// Older name for the second half.
    pub event_label: String,
    /// More about it.
    pub event_data: Option<Value>,
    /// To which sandbox.
    pub sandbox_id: String,
    /// In which of its sessions; UUID.
    pub sandbox_execution_id: String,
    /// What it was made from.
    pub sandbox_template_id: String,
    /// What it was made from; UUID.
    pub sandbox_build_id: String,
    /// Whose it is; UUID.
    pub sandbox_team_id: String,
}

/// Body of `POST /events/webhooks`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewWebhook {
    /// What it is called.
    pub name: String,
    /// Who is told.
    pub url: String,
    /// Of what: types of events.
    pub events: Vec<String>,
    /// What signs.
    pub signature_secret: Secret,
    /// Whether it is used; true when absent.
    #[serde(default = "yes")]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}

/// Body of `PATCH /events/webhooks/{id}`: what is absent stays.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WebhookUpdate {
    /// What it is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Who is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Of what: types of events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<String>>,
    /// What signs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature_secret: Option<Secret>,
    /// Whether it is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// A webhook, without its secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// UUID.
    pub id: String,
    /// Whose it is; UUID.
    pub team_id: String,
    /// What it is called.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who is told.
    pub url: String,
    /// Whether it is used.
    pub enabled: bool,
    /// Of what: types of events.
    pub events: Vec<String>,
}

/// A page of deliveries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deliveries {
    /// One entry an event.
    pub data: Vec<Delivery>,
    /// Where the next page begins; none on the last.
    pub next_cursor: Option<String>,
}

/// How telling about one event went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// The event; UUID.
    pub event_id: String,
    /// Its type.
    pub event_type: String,
    /// Its sandbox.
    pub sandbox_id: String,
    /// Oldest first.
    pub attempts: Vec<Attempt>,
}

/// One attempt to tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// UUID.
    pub id: String,
    /// Whose webhook; UUID.
    pub team_id: String,
    /// The webhook; UUID.
    pub webhook_id: String,
    /// The event; UUID.
    pub event_id: String,
    /// Its sandbox.
    pub sandbox_id: String,
    /// Its type.
    pub event_type: String,
    /// `success` or `failed`.
    pub status: String,
    /// Milliseconds.
    pub duration_ms: i64,
    /// As sent.
    pub request_body: String,
    /// JSON text, without the signature.
    pub request_headers: String,
    /// Where it was sent.
    pub request_url: String,
    /// The beginning of it; none without an answer.
    pub response_body: Option<String>,
    /// JSON text; none without an answer.
    pub response_headers: Option<String>,
    /// None without an answer.
    pub response_http_status_code: Option<u16>,
    /// What kind of failure.
    pub error_class: Option<String>,
    /// What went wrong.
    pub error_message: Option<String>,
    /// When it began.
    pub timestamp: Timestamp,
}

/// Answer of `GET …/stats`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookStats {
    /// By hour, oldest first; hours without attempts are left out.
    pub buckets: Vec<StatsBucket>,
    /// Attempts.
    pub total: i64,
    /// Of them failed.
    pub failed: i64,
    /// How long attempts took.
    pub duration_ms: Durations,
}

/// One hour of attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatsBucket {
    /// Its beginning.
    pub timestamp: Timestamp,
    /// Attempts.
    pub total: i64,
    /// Of them failed.
    pub failed: i64,
    /// On average, milliseconds.
    pub duration_ms: f64,
}

/// Milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Durations {
    /// Of the quickest.
    pub minimum: i64,
    /// On average.
    pub average: f64,
    /// Of the slowest.
    pub maximum: i64,
}
