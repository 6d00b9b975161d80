//! Bodies about sandboxes (contract: control-plane, section 6).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::network::Network;
use crate::id::SandboxId;
use crate::secret::Secret;

/// Body of `POST /sandboxes` and `POST /v2/sandboxes`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSandbox {
    /// Name, `namespace/name`, `name:tag`, id, or snapshot id.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Seconds; 15 when absent on v1, 300 on v2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i32>,
    /// Pause instead of kill at expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_pause: Option<bool>,
    /// Whether that pause keeps memory; true when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_pause_memory: Option<bool>,
    /// Whether traffic wakes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_resume: Option<AutoResume>,
    /// Whether the agent demands its token; v1 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure: Option<bool>,
    /// False is the same as denying `0.0.0.0/0`.
    #[serde(rename = "allow_internet_access", default, skip_serializing_if = "Option::is_none")]
    pub allow_internet_access: Option<bool>,
    /// Network rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The user's own labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Variables of every process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
    /// Opaque; the SDK starts the gateway itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<Value>,
    /// Workload identities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iam: Option<Value>,
    /// Volumes to mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mounts: Option<Vec<VolumeMount>>,
}

/// `autoResume` of a create request.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub struct AutoResume {
    /// Whether traffic wakes a paused sandbox.
    pub enabled: bool,
}

/// A volume and where it is seen.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct VolumeMount {
    /// Its name.
    pub name: String,
    /// Absolute path inside.
    pub path: String,
}

/// Answer of create, connect and resume.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    /// The resolved template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// The sandbox.
    #[serde(rename = "sandboxID")]
    pub sandbox_id: SandboxId,
    /// A constant.
    #[serde(rename = "clientID")]
    pub client_id: String,
    /// The template's name; may be empty.
    #[serde(default)]
    pub alias: String,
    /// Version of the agent.
    pub envd_version: String,
    /// What agent requests carry in `X-Access-Token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envd_access_token: Option<Secret>,
    /// What other ports demand when public traffic is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_access_token: Option<Secret>,
    /// Base of `{port}-{id}.` host names.
    pub domain: Option<String>,
}

/// `state` of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its processes run.
    Running,
    /// They are kept, and do not run.
    Paused,
}

/// One entry of the lists.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedSandbox {
    /// The resolved template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// The template's name; may be empty.
    #[serde(default)]
    pub alias: String,
    /// The sandbox.
    #[serde(rename = "sandboxID")]
    pub sandbox_id: SandboxId,
    /// A constant.
    #[serde(rename = "clientID")]
    pub client_id: String,
    /// Start of the present session, of the last one while paused.
    pub started_at: Timestamp,
    /// When it expires; when it was paused.
    pub end_at: Timestamp,
    /// Whole CPUs.
    pub cpu_count: u32,
    /// MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u64,
    /// MiB.
    #[serde(rename = "diskSizeMB")]
    pub disk_size_mb: u64,
    /// The user's own labels.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Running or paused.
    pub state: State,
    /// Version of the agent.
    pub envd_version: String,
    /// Volumes it mounts.
    #[serde(default)]
    pub volume_mounts: Vec<VolumeMount>,
}

/// Answer of `GET /sandboxes/{id}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxDetail {
    /// What the lists say too.
    #[serde(flatten)]
    pub listed: ListedSandbox,
    /// What agent requests carry in `X-Access-Token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envd_access_token: Option<Secret>,
    /// As given at create, or by the last update.
    pub allow_internet_access: Option<bool>,
    /// Base of `{port}-{id}.` host names.
    pub domain: Option<String>,
    /// As given at create, or by the last update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// What happens at expiry.
    pub lifecycle: Lifecycle,
    /// What a pause kept; paused sandboxes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_mode: Option<PauseMode>,
}

/// What happens when time is up, and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// Whether traffic wakes it.
    pub auto_resume: bool,
    /// Kill or pause.
    pub on_timeout: OnTimeout,
}

/// What happens at expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnTimeout {
    /// Everything is lost.
    Kill,
    /// It can be resumed.
    Pause,
}

/// What a pause keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PauseMode {
    /// Processes and memory too.
    Full,
    /// Files only.
    Filesystem,
}

/// Body of `POST …/timeout`.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub struct Timeout {
    /// Seconds from now.
    pub timeout: i32,
}

/// Body of `POST …/refreshes`.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
pub struct Refresh {
    /// Seconds from now, 0..3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<i32>,
}

/// Body of `POST …/pause`.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pause {
    /// Whether processes are kept; true when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
    /// Whether an unhealthy agent is a reason to refuse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_healthy_guest: Option<bool>,
}

/// Body of `POST …/resume`.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resume {
    /// Seconds; 15 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i32>,
    /// Overrides the setting of the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_pause: Option<bool>,
    /// Whether memory is brought back; true when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
}

/// Body of `POST …/connect`, v1 and v2.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Connect {
    /// Seconds; required on v1, 300 when absent on v2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i32>,
    /// Whether memory is brought back; true when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
}
