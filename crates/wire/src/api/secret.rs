//! Secrets: values that requests of sandboxes get on their way out (contract: control-plane, section 12).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// Body of `POST /secrets`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewSecret {
    /// Name of the secret in its team.
    pub name: String,
    /// Value of the secret, which no call returns.
    pub value: Secret,
    /// Labels of the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
}

/// Body of `POST /secrets/{ref}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SecretUpdate {
    /// The new value.
    pub value: Secret,
    /// The new labels; those there are stay if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
}

/// A secret without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretInfo {
    /// Id of the secret, `sec_…`.
    #[serde(rename = "secretID")]
    pub secret_id: String,
    /// Name in lowercase.
    pub name: String,
    /// Number of values that it has had.
    pub current_version: i64,
    /// Labels of the secret.
    pub metadata: BTreeMap<String, String>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last value.
    pub updated_at: Timestamp,
}
