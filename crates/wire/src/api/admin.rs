//! What operators ask and are told (contract: control-plane, section 13). Teams as an operator sees them have the
//! members of the dashboard's own interface; how they are made and changed here is this server's addition.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Running sandboxes by team id.
pub type RunningCounts = BTreeMap<String, u32>;

/// Answer of `POST /admin/teams/{id}/sandboxes/kill`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Killed {
    /// How many are gone.
    pub killed_count: u32,
    /// How many are not.
    pub failed_count: u32,
}

/// Answer of `POST /admin/teams/{id}/builds/cancel`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cancelled {
    /// How many were ended.
    pub cancelled_count: u32,
    /// How many were not.
    pub failed_count: u32,
}

/// A team, as operators see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdminTeam {
    /// UUID.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Namespace of its templates.
    pub slug: String,
    /// Whether it is the one made at the first start.
    pub is_default: bool,
    /// Whether it may nothing.
    pub is_banned: bool,
    /// Whether it may only look and clean up.
    pub is_blocked: bool,
    /// Why it is blocked.
    pub blocked_reason: Option<String>,
    /// What it may use.
    pub limits: TeamLimits,
}

/// What a team may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TeamLimits {
    /// Longest session of a sandbox, hours.
    pub max_length_hours: u64,
    /// Sandboxes at once.
    pub concurrent_sandboxes: u32,
    /// CPUs of one sandbox.
    pub max_vcpu: u32,
    /// Memory of one sandbox, MiB.
    pub max_ram_mb: u64,
    /// Disk of one sandbox, and the most of one volume, MiB.
    pub disk_mb: u64,
    /// Days that events are kept.
    pub events_ttl_days: u32,
}

/// Body of `POST /admin/teams`. Unlike in calls that clients make, a misspelled member is refused: a limit that is not set
/// would go unnoticed.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewTeam {
    /// Display name.
    pub name: String,
    /// Namespace of its templates; made from the name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slug: Option<String>,
    /// What it may use; what is absent is as it is for every new team.
    #[serde(default)]
    pub limits: LimitsUpdate,
}

/// Body of `PATCH /admin/teams/{id}`: what is absent stays as it is.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TeamUpdate {
    /// Display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether it may nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_banned: Option<bool>,
    /// Whether it may only look and clean up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_blocked: Option<bool>,
    /// Why it is blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_reason: Option<String>,
    /// What it may use.
    pub limits: LimitsUpdate,
}

/// Limits to set.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LimitsUpdate {
    /// Longest session of a sandbox, hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_length_hours: Option<u64>,
    /// Sandboxes at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_sandboxes: Option<u32>,
    /// CPUs of one sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_vcpu: Option<u32>,
    /// Memory of one sandbox, MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ram_mb: Option<u64>,
    /// Disk of one sandbox, and the most of one volume, MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    /// Days that events are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_ttl_days: Option<u32>,
}

/// Whether a node takes new sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeStatus {
    /// It does.
    Ready,
    /// It does not, and keeps those it has.
    Draining,
    /// Its server is coming up.
    Connecting,
    /// It cannot.
    Unhealthy,
    /// It waits for its turn.
    Standby,
}

/// Body of `POST /nodes/{id}`.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub struct NodeStatusChange {
    /// What it is to be.
    pub status: NodeStatus,
}

/// A host that runs sandboxes: here always the server's own.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its host name.
    pub id: String,
    /// Changes with every start of the server.
    #[serde(rename = "serviceInstanceID")]
    pub service_instance_id: String,
    /// A constant.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Of the server.
    pub version: String,
    /// Of the server; may be empty.
    pub commit: String,
    /// Its processor.
    pub machine_info: MachineInfo,
    /// Whether it takes new sandboxes.
    pub status: NodeStatus,
    /// Since when.
    pub status_changed_at: Timestamp,
    /// Running sandboxes.
    pub sandbox_count: u32,
    /// Sandboxes that are being started; lists only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_starting_count: Option<u32>,
    /// Starts that succeeded since the server started.
    pub create_successes: u64,
    /// Starts that failed since the server started.
    pub create_fails: u64,
    /// What is used.
    pub metrics: NodeMetrics,
}

/// The processor of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineInfo {
    /// As the kernel numbers it.
    pub cpu_family: String,
    /// As the kernel numbers it.
    pub cpu_model: String,
    /// As its maker calls it.
    pub cpu_model_name: String,
    /// E.g. `x86_64`.
    pub cpu_architecture: String,
}

/// What of a node is used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeMetrics {
    /// CPUs promised to running sandboxes.
    #[serde(rename = "allocatedCPU")]
    pub allocated_cpu: u32,
    /// Of all CPUs together, since the last time this was asked.
    pub cpu_percent: u32,
    /// CPUs.
    pub cpu_count: u32,
    /// Memory promised to running sandboxes, bytes.
    pub allocated_memory_bytes: u64,
    /// Bytes.
    pub memory_used_bytes: u64,
    /// Bytes.
    pub memory_total_bytes: u64,
    /// Huge pages.
    pub huge_pages_total: u64,
    /// Huge pages in use.
    pub huge_pages_used: u64,
    /// Huge pages promised.
    pub huge_pages_reserved: u64,
    /// Bytes.
    pub huge_page_size_bytes: u64,
    /// Where sandboxes write.
    pub disks: Vec<Disk>,
}

/// A mounted disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Where it is mounted.
    pub mount_point: String,
    /// What is mounted.
    pub device: String,
    /// Its file system.
    pub filesystem_type: String,
    /// Bytes.
    pub used_bytes: u64,
    /// Bytes.
    pub total_bytes: u64,
}
