//! The manifest: what a backup is of.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Format of the archives that this version writes.
pub const FORMAT: u32 = 1;

/// The first member of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Format of the archive.
    pub format: u32,
    /// Version of Sandcove that wrote the backup.
    pub version: String,
    /// Number of the last migration of the database.
    pub schema: i64,
    /// Time at which the backup began.
    pub created_at: jiff::Timestamp,
    /// How much of everything there is.
    pub counts: Counts,
    /// Directories that are subvolumes of the pool, by name.
    pub subvolumes: BTreeMap<String, Subvolume>,
}

/// How much of everything a backup has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Sandboxes that ran, which are paused in the backup.
    pub running_sandboxes: usize,
    /// Sandboxes that were paused.
    pub paused_sandboxes: usize,
    /// Paused sandboxes with their memory.
    pub with_memory: usize,
    /// Snapshots, with the files of templates that were built from them.
    pub snapshots: usize,
    /// Number of volumes.
    pub volumes: usize,
    /// Layers of templates.
    pub layers: usize,
}

/// Properties of a subvolume that are not those of its files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subvolume {
    /// Space below its limit that was left, bytes; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<u64>,
    /// Account of the pool that is charged for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<u64>,
    /// Whether nothing in it changes any more.
    #[serde(default)]
    pub read_only: bool,
}
