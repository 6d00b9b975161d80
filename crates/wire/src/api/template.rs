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
    /// Whether the template comes with the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_default: Option<bool>,
}

/// The creator of a template.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TeamUser {
    /// Id of the user; UUID.
    pub id: String,
    /// Email address, if known.
    pub email: Option<String>,
}

/// Answer of `GET /templates/{id}`: the template as in the lists, with its builds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TemplateWithBuilds {
    /// The template.
    #[serde(flatten)]
    pub template: Template,
    /// Builds, the newest first.
    pub builds: Vec<TemplateBuild>,
    /// The code interpreter of the build that the template names, if its sandboxes have one. Sandcove's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<TemplateInterpreter>,
}

/// The code interpreter of a template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateInterpreter {
    /// Path of the Python that runs its kernels.
    pub python: String,
    /// Modules that are imported ahead; the usual ones when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<Vec<String>>,
    /// State of the warm interpreter that new sandboxes get a fork of.
    pub state: WarmInterpreterState,
    /// Memory that the warm interpreter uses, MiB. Its sandboxes share it.
    #[serde(rename = "memoryMiB", default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Time that the warm interpreter took to start, milliseconds: what each fork of it saves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<u64>,
    /// Reason of the last failure, when it could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// State of a warm interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WarmInterpreterState {
    /// The process imports modules.
    Starting,
    /// Sandboxes get forks of it.
    Ready,
    /// The process could not be started: the interpreters of sandboxes start cold.
    Failed,
    /// Nobody has used the template for a while, or others are used more: there is none, until the next sandbox is created.
    Evicted,
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

/// Body of `PATCH /v2/templates/{id}` and `PATCH /templates/{id}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateUpdate {
    /// Whether other teams may use the template; not changed when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<bool>,
}

/// Answer of `PATCH /v2/templates/{id}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateNames {
    /// Names with namespace.
    pub names: Vec<String>,
}
