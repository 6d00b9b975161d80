//! Volumes and their files (contract: control-plane, section 11).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// One entry of `GET /volumes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// UUID.
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// What its team calls it.
    pub name: String,
}

/// A volume with what opens its files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeAndToken {
    /// UUID.
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// What its team calls it.
    pub name: String,
    /// Bearer token of content calls, for a while.
    pub token: Secret,
}

/// A file, as content calls show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Last part of the path; empty for the volume itself.
    pub name: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: EntryKind,
    /// Absolute, with the volume as root.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner inside sandboxes.
    pub uid: u32,
    /// Group inside sandboxes.
    pub gid: u32,
    /// When it was read last.
    pub atime: Timestamp,
    /// When it was written last.
    pub mtime: Timestamp,
    /// When it was changed last.
    pub ctime: Timestamp,
    /// Where a symbolic link leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// None of the others.
    Unknown,
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// Body of `PATCH …/path`: what is absent stays.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct EntryUpdate {
    /// Owner inside sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<i64>,
    /// Group inside sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<i64>,
    /// Permission bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<i64>,
}

/// The error body of content calls: unlike everywhere else, `code` is text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentError {
    /// What kind of error.
    pub code: String,
    /// What went wrong, for the caller.
    pub message: String,
}
