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
    /// Template as name, `namespace/name`, `name:tag`, id, or snapshot id.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Timeout in seconds; when absent 15 on v1, 300 on v2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i32>,
    /// Whether the sandbox is paused instead of killed at expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_pause: Option<bool>,
    /// Whether the pause at expiry keeps memory; true when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_pause_memory: Option<bool>,
    /// Whether traffic resumes the paused sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_resume: Option<AutoResume>,
    /// Whether the agent requires its token; v1 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure: Option<bool>,
    /// Whether the internet may be reached; false is the same as denying `0.0.0.0/0`.
    #[serde(rename = "allow_internet_access", default, skip_serializing_if = "Option::is_none")]
    pub allow_internet_access: Option<bool>,
    /// Network rules of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Labels set by the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Variables of every process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
    /// Opaque settings of MCP, whose gateway the SDK starts itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<Value>,
    /// Workload identities of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iam: Option<Value>,
    /// Volumes to mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mounts: Option<Vec<VolumeMount>>,
}

/// The member `autoResume` of a create request.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub struct AutoResume {
    /// Whether traffic resumes a paused sandbox.
    pub enabled: bool,
}

/// A volume and its mount point.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct VolumeMount {
    /// Name of the volume.
    pub name: String,
    /// Absolute path inside the sandbox.
    pub path: String,
}

/// Answer of create, connect and resume.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    /// Id of the resolved template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Id of the sandbox.
    #[serde(rename = "sandboxID")]
    pub sandbox_id: SandboxId,
    /// Constant client id.
    #[serde(rename = "clientID")]
    pub client_id: String,
    /// Name of the template; may be empty.
    #[serde(default)]
    pub alias: String,
    /// Version of the agent.
    pub envd_version: String,
    /// Token that agent requests carry in `X-Access-Token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envd_access_token: Option<Secret>,
    /// Token that requests to other ports carry when public traffic is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_access_token: Option<Secret>,
    /// Base of `{port}-{id}.` host names.
    pub domain: Option<String>,
}

/// The state of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The processes run.
    Running,
    /// The sandbox is kept, and no process runs.
    Paused,
}

/// An entry of the sandbox lists.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedSandbox {
    /// Id of the resolved template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Name of the template; may be empty.
    #[serde(default)]
    pub alias: String,
    /// Id of the sandbox.
    #[serde(rename = "sandboxID")]
    pub sandbox_id: SandboxId,
    /// Constant client id.
    #[serde(rename = "clientID")]
    pub client_id: String,
    /// Start of the current session, or of the last one while paused.
    pub started_at: Timestamp,
    /// Time of expiry, or of the pause.
    pub end_at: Timestamp,
    /// Number of CPUs.
    pub cpu_count: u32,
    /// Memory, in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u64,
    /// Disk, in MiB.
    #[serde(rename = "diskSizeMB")]
    pub disk_size_mb: u64,
    /// Labels set by the user.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// State: running or paused.
    pub state: State,
    /// Version of the agent.
    pub envd_version: String,
    /// Volumes mounted in the sandbox.
    #[serde(default)]
    pub volume_mounts: Vec<VolumeMount>,
    /// Whether the agent did not answer when the sandbox was paused, so that its memory is not resumed; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envd_unresponsive_at_pause: Option<bool>,
    /// Memory of a paused sandbox; none when only files are kept. An addition to E2B's API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_memory: Option<KeptMemory>,
}

/// The memory of a paused sandbox or a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptMemory {
    /// Where the memory is.
    pub place: MemoryPlace,
    /// Size, bytes.
    pub bytes: u64,
}

/// The place of the memory of a paused sandbox or a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryPlace {
    /// In the host's memory, frozen: kept while the host is up.
    Host,
    /// On disk: kept over a reboot too.
    Disk,
}

/// Answer of `GET /sandboxes/{id}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxDetail {
    /// Members that the entries of lists have too.
    #[serde(flatten)]
    pub listed: ListedSandbox,
    /// Token that agent requests carry in `X-Access-Token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envd_access_token: Option<Secret>,
    /// Whether the internet may be reached, as given at creation or by the last update.
    pub allow_internet_access: Option<bool>,
    /// Base of `{port}-{id}.` host names.
    pub domain: Option<String>,
    /// Network rules, as given at creation or by the last update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Lifecycle settings of the sandbox.
    pub lifecycle: Lifecycle,
    /// Kind of the pause; paused sandboxes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_mode: Option<PauseMode>,
}

/// The lifecycle settings of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// Whether traffic resumes the paused sandbox.
    pub auto_resume: bool,
    /// Action at expiry.
    pub on_timeout: OnTimeout,
}

/// The action at expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnTimeout {
    /// The sandbox is killed, and everything is lost.
    Kill,
    /// The sandbox is paused, and can be resumed.
    Pause,
}

/// The kind of a pause, by what it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PauseMode {
    /// Processes and memory are kept too.
    Full,
    /// Only files are kept.
    Filesystem,
}

/// Body of `POST …/timeout`.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub struct Timeout {
    /// Timeout, in seconds from now.
    pub timeout: i32,
}

/// Body of `POST …/refreshes`.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
pub struct Refresh {
    /// Duration, in seconds from now, 0 to 3600.
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
    /// Whether the pause is refused if the agent is unhealthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_healthy_guest: Option<bool>,
}

/// Body of `POST …/resume`.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resume {
    /// Timeout in seconds; 15 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i32>,
    /// Action at expiry; overrides the setting of the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_pause: Option<bool>,
    /// Whether memory is restored; true when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
}

/// Body of `POST …/connect`, v1 and v2.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Connect {
    /// Timeout in seconds; required on v1, 300 when absent on v2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i32>,
    /// Whether memory is restored; true when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
}
