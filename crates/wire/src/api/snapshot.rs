//! Bodies about snapshots and forks (contract: control-plane, section 7).

use serde::{Deserialize, Serialize};

use super::error::ErrorBody;
use super::sandbox::Sandbox;

/// Body of `POST /sandboxes/{id}/snapshots`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct NewSnapshot {
    /// `[namespace/]name[:tag]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether memory is wanted too; true when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct SnapshotInfo {
    /// What sandboxes are made from it with.
    #[serde(rename = "snapshotID")]
    pub snapshot_id: String,
    /// Full names.
    pub names: Vec<String>,
}

/// Body of `POST /sandboxes/{id}/fork`.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Fork {
    /// Seconds; 15 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i32>,
    /// 1..100; 1 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
}

/// One fork: either of the two.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ForkResult {
    /// It runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// It could not be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}
