//! Teams, their keys and tokens (contract: control-plane, section 10).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// One entry of `GET /teams`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Team {
    /// UUID.
    #[serde(rename = "teamID")]
    pub team_id: String,
    /// Display name.
    pub name: String,
    /// A key of the team, made for this answer.
    pub api_key: Secret,
    /// Whether it is the caller's default team.
    pub is_default: bool,
}

/// What may be shown of a key or token (contract: control-plane, section 4.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyMask {
    /// What every one begins with.
    pub prefix: String,
    /// Characters after the prefix.
    pub value_length: usize,
    /// The first of them.
    pub masked_value_prefix: String,
    /// The last of them.
    pub masked_value_suffix: String,
}

/// Body of every call that names a key or token.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Named {
    /// What it is called.
    pub name: String,
}

/// An API key, without itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    /// UUID.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// As much of it as may be shown.
    pub mask: KeyMask,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it; nobody is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// When it was used last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
}

/// An API key that was made just now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewApiKey {
    /// What the lists will say too.
    #[serde(flatten)]
    pub listed: ApiKey,
    /// The key, shown this once.
    pub key: Secret,
}

/// An access token that was made just now.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewAccessToken {
    /// UUID.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// The token, shown this once.
    pub token: Secret,
    /// As much of it as may be shown later.
    pub mask: KeyMask,
    /// When it was made.
    pub created_at: Timestamp,
}
