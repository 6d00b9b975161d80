//! Templates (contract: control-plane, section 9.3).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How far a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BuildStatus {
    /// Not started.
    Waiting,
    /// Under way.
    Building,
    /// Usable.
    Ready,
    /// Failed.
    Error,
}

/// One entry of the template lists.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// The template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Its newest build.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// Whole CPUs.
    pub cpu_count: u32,
    /// MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u64,
    /// MiB.
    #[serde(rename = "diskSizeMB")]
    pub disk_size_mb: u64,
    /// Whether other teams may use it.
    pub public: bool,
    /// Bare names.
    pub aliases: Vec<String>,
    /// Names with their namespace.
    pub names: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Who made it; null for the server's own.
    pub created_by: Option<TeamUser>,
    /// When a sandbox was last made from it.
    pub last_spawned_at: Option<Timestamp>,
    /// How many sandboxes were made from it.
    pub spawn_count: i64,
    /// How many builds it has.
    pub build_count: i64,
    /// Version of the agent.
    pub envd_version: String,
    /// Of the newest build.
    pub build_status: BuildStatus,
}

/// Who made a template.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TeamUser {
    /// UUID.
    pub id: String,
    /// Address, when known.
    pub email: Option<String>,
}

/// Answer of `GET /templates/{id}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateWithBuilds {
    /// The template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Whether other teams may use it.
    pub public: bool,
    /// Bare names.
    pub aliases: Vec<String>,
    /// Names with their namespace.
    pub names: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When a sandbox was last made from it.
    pub last_spawned_at: Option<Timestamp>,
    /// How many sandboxes were made from it.
    pub spawn_count: i64,
    /// Newest first.
    pub builds: Vec<TemplateBuild>,
}

/// One build of a template.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateBuild {
    /// UUID.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// How far it is.
    pub status: BuildStatus,
    /// When it was requested.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Whole CPUs.
    pub cpu_count: u32,
    /// MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u64,
    /// MiB.
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
    /// The template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Whether other teams may use it.
    pub public: bool,
}

/// One entry of `GET /templates/{id}/tags`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateTag {
    /// The tag.
    pub tag: String,
    /// The build it names.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// When it was set.
    pub created_at: Timestamp,
}
