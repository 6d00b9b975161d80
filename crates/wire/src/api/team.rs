//! Teams, their keys and tokens (contract: control-plane, section 10).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// An entry of `GET /teams`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Team {
    /// Id of the team; UUID.
    #[serde(rename = "teamID")]
    pub team_id: String,
    /// Display name.
    pub name: String,
    /// Key of the team, created for this answer.
    pub api_key: Secret,
    /// Whether the team is the caller's default team.
    pub is_default: bool,
}

/// The part of a key or token that may be shown (contract: control-plane, section 4.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyMask {
    /// Prefix of every key or token of this kind.
    pub prefix: String,
    /// Number of characters after the prefix.
    pub value_length: usize,
    /// First characters after the prefix.
    pub masked_value_prefix: String,
    /// Last characters.
    pub masked_value_suffix: String,
}

/// Body of every call that names a key or token.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Named {
    /// Display name.
    pub name: String,
}

/// An API key, without its secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    /// Id of the key; UUID.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Part of the key that may be shown.
    pub mask: KeyMask,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Creator of the key; always absent here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// Time of the last use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
}

/// An API key that has just been created.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewApiKey {
    /// Key as in lists.
    #[serde(flatten)]
    pub listed: ApiKey,
    /// Secret of the key, shown only once.
    pub key: Secret,
}

/// An access token that has just been created.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewAccessToken {
    /// Id of the token; UUID.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Secret of the token, shown only once.
    pub token: Secret,
    /// Part of the token that may be shown later.
    pub mask: KeyMask,
    /// Time of creation.
    pub created_at: Timestamp,
}
