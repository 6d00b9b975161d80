//! The audit log: who did what.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A record of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// Number of the record; later records have higher ones.
    pub id: u64,
    /// Time of the answer.
    pub time: Timestamp,
    /// The action, such as `sandbox.kill`.
    pub action: String,
    /// Id of what was changed, as far as it is known: that of the path, or of what was created.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub object: Option<String>,
    /// Kind of the credential.
    pub credential: AuditCredential,
    /// Id of the API key. The key itself is nowhere in the log.
    #[serde(rename = "keyID", skip_serializing_if = "Option::is_none", default)]
    pub key_id: Option<String>,
    /// Id of the team that acted; operators act for none.
    #[serde(rename = "teamID", skip_serializing_if = "Option::is_none", default)]
    pub team_id: Option<String>,
    /// Whether it was done.
    pub outcome: AuditOutcome,
    /// HTTP status of the answer; absent when the client did not wait for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<u16>,
    /// `X-Request-Id` of the request.
    #[serde(rename = "requestID")]
    pub request_id: String,
    /// Address that the request came from.
    pub remote: String,
    /// Address of the client, as a proxy says; any client can say so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub forwarded_for: Option<String>,
    /// How the request came, unless it was a call of the API: `dashboard` or `mcp`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub via: Option<String>,
}

/// The kind of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditCredential {
    /// An API key of a team.
    ApiKey,
    /// An access token of a user of a team.
    AccessToken,
    /// The admin token.
    AdminToken,
}

/// Whether an action was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// The action was done.
    Done,
    /// The action was refused.
    Refused,
    /// The server failed; it may be done in part.
    Failed,
    /// The client did not wait; it may be done.
    Unknown,
}
