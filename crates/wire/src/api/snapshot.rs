//! Bodies about snapshots and forks (contract: control-plane, section 7).

use serde::{Deserialize, Serialize};

use super::error::ErrorBody;
use super::sandbox::{KeptMemory, Sandbox};

/// Body of `POST /sandboxes/{id}/snapshots`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct NewSnapshot {
    /// Name of the snapshot, as `[namespace/]name[:tag]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether memory is kept too; true when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct SnapshotInfo {
    /// Id that creates sandboxes from the snapshot.
    #[serde(rename = "snapshotID")]
    pub snapshot_id: String,
    /// Full names of the snapshot.
    pub names: Vec<String>,
    /// The memory that the snapshot has, if it has any.
    #[serde(rename = "keptMemory", default, skip_serializing_if = "Option::is_none")]
    pub kept_memory: Option<KeptMemory>,
}

/// Body of `POST /sandboxes/{id}/fork`.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Fork {
    /// Timeout in seconds; 15 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i32>,
    /// Number of forks, 1 to 100; 1 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
}

/// The outcome of a fork: a sandbox or an error.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ForkResult {
    /// The fork runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// The fork could not be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}
