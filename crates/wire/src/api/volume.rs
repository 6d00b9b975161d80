//! Volumes and their files (contract: control-plane, section 11).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// An entry of `GET /volumes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Id of the volume; UUID.
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// Name of the volume in its team.
    pub name: String,
}

/// A volume with the token for its content.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeAndToken {
    /// Id of the volume; UUID.
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// Name of the volume in its team.
    pub name: String,
    /// Bearer token of content calls, which expires.
    pub token: Secret,
    /// Domain whose API takes content calls; absent when that is the API that was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

/// A file as content calls show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Last component of the path; empty for the volume itself.
    pub name: String,
    /// Type of the file.
    #[serde(rename = "type")]
    pub kind: EntryKind,
    /// Absolute path, with the volume as root.
    pub path: String,
    /// Size, in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// User id of the owner inside sandboxes.
    pub uid: u32,
    /// Group id inside sandboxes.
    pub gid: u32,
    /// Time of the last read.
    pub atime: Timestamp,
    /// Time of the last write.
    pub mtime: Timestamp,
    /// Time of the last change.
    pub ctime: Timestamp,
    /// Target of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// A file of any other type.
    Unknown,
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// Body of `PATCH …/path`; absent members are not changed.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct EntryUpdate {
    /// User id of the owner inside sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<i64>,
    /// Group id inside sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<i64>,
    /// Permission bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<i64>,
}

/// The error body of content calls, in which `code` is text, unlike in all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentError {
    /// Kind of error.
    pub code: String,
    /// Description of the error, for the caller.
    pub message: String,
}
