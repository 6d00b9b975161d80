//! Teams (contract: control-plane, section 10).

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
