//! Secrets of a team.

use std::collections::BTreeMap;

use jiff::Timestamp;
use uuid::Uuid;

/// A secret. Its value is sealed, and the server cannot open it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecretRecord {
    /// Id of the secret, `sec_…`.
    pub(crate) id: String,
    /// The team that it belongs to.
    pub(crate) team: Uuid,
    /// Name in lowercase, unique in the team.
    pub(crate) name: String,
    /// The sealed value.
    pub(crate) sealed: String,
    /// Number of values that it has had.
    pub(crate) version: i64,
    /// Labels of the secret.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Time of creation.
    pub(crate) created_at: Timestamp,
    /// Time of the last value.
    pub(crate) updated_at: Timestamp,
}

impl SecretRecord {
    /// Beginning of every id, which no name may have.
    pub(crate) const PREFIX: &'static str = "sec_";

    /// The context that the value is sealed for: it opens in no other.
    pub(crate) fn context(&self) -> String {
        context(self.team, &self.id)
    }
}

/// The context of the value of the secret `id` of `team`.
pub(crate) fn context(team: Uuid, id: &str) -> String {
    format!("{team}/{id}")
}
