//! Templates (contract: control-plane, section 9.3).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The status of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BuildStatus {
    /// The build has not started.
    Waiting,
    /// The build runs.
    Building,
    /// The build succeeded.
    Ready,
    /// The build failed.
    Error,
}

/// An entry of the template lists.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Id of the template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Id of the newest build.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// Number of CPUs.
    pub cpu_count: u32,
    /// Memory, in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u64,
    /// Disk, in MiB.
    #[serde(rename = "diskSizeMB")]
    pub disk_size_mb: u64,
    /// Whether other teams may use the template.
    pub public: bool,
    /// Names without namespace.
    pub aliases: Vec<String>,
    /// Names with namespace.
    pub names: Vec<String>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Creator of the template; null for the server's own.
    pub created_by: Option<TeamUser>,
    /// Time of the last sandbox created from the template.
    pub last_spawned_at: Option<Timestamp>,
    /// Number of sandboxes created from the template.
    pub spawn_count: i64,
    /// Number of builds.
    pub build_count: i64,
    /// Version of the agent.
    pub envd_version: String,
    /// Status of the newest build.
    pub build_status: BuildStatus,
}

/// The creator of a template.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TeamUser {
    /// Id of the user; UUID.
    pub id: String,
    /// Email address, if known.
    pub email: Option<String>,
}

/// Answer of `GET /templates/{id}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateWithBuilds {
    /// Id of the template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Whether other teams may use the template.
    pub public: bool,
    /// Names without namespace.
    pub aliases: Vec<String>,
    /// Names with namespace.
    pub names: Vec<String>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Time of the last sandbox created from the template.
    pub last_spawned_at: Option<Timestamp>,
    /// Number of sandboxes created from the template.
    pub spawn_count: i64,
    /// Builds, the newest first.
    pub builds: Vec<TemplateBuild>,
}

/// A build of a template.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateBuild {
    /// Id of the build; UUID.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// Status of the build.
    pub status: BuildStatus,
    /// Time of the request.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Time of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Number of CPUs.
    pub cpu_count: u32,
    /// Memory, in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u64,
    /// Disk, in MiB.
    #[serde(rename = "diskSizeMB", default, skip_serializing_if = "Option::is_none")]
    pub disk_size_mb: Option<u64>,
    /// Version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envd_version: Option<String>,
}

/// Answer of `GET /templates/aliases/{alias}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateAlias {
    /// Id of the template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Whether other teams may use the template.
    pub public: bool,
}

/// An entry of `GET /templates/{id}/tags`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateTag {
    /// Name of the tag.
    pub tag: String,
    /// Id of the build that has the tag.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// Time at which the tag was set.
    pub created_at: Timestamp,
}
