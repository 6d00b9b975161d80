//! Bodies of the requests and answers of operators (contract: control-plane, section 13). A team has the members of the
//! dashboard's own interface; the calls that create and change teams are this server's addition.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The number of running sandboxes by team id.
pub type RunningCounts = BTreeMap<String, u32>;

/// Answer of `POST /admin/teams/{id}/sandboxes/kill`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Killed {
    /// Number of sandboxes that were killed.
    pub killed_count: u32,
    /// Number of sandboxes that could not be killed.
    pub failed_count: u32,
}

/// Answer of `POST /admin/teams/{id}/builds/cancel`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cancelled {
    /// Number of builds that were cancelled.
    pub cancelled_count: u32,
    /// Number of builds that could not be cancelled.
    pub failed_count: u32,
}

/// A team, as operators see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdminTeam {
    /// Id of the team; UUID.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Namespace of the templates of the team.
    pub slug: String,
    /// Whether the team is the one created at the first start.
    pub is_default: bool,
    /// Whether all requests of the team are refused.
    pub is_banned: bool,
    /// Whether the team may only read and delete.
    pub is_blocked: bool,
    /// Reason of the block.
    pub blocked_reason: Option<String>,
    /// Limits of the team.
    pub limits: TeamLimits,
}

/// The limits of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TeamLimits {
    /// Maximum session of a sandbox, in hours.
    pub max_length_hours: u64,
    /// Maximum of concurrent sandboxes.
    pub concurrent_sandboxes: u32,
    /// Maximum of CPUs of a sandbox.
    pub max_vcpu: u32,
    /// Maximum of memory of a sandbox, in MiB.
    pub max_ram_mb: u64,
    /// Maximum of disk of a sandbox, and of a volume, in MiB.
    pub disk_mb: u64,
    /// Days that events are kept.
    pub events_ttl_days: u32,
    /// Maximum of paused sandboxes.
    pub paused_sandboxes: u32,
    /// Maximum of paused sandboxes that keep their memory.
    pub paused_in_memory: u32,
    /// Maximum of memory of paused sandboxes together, in MiB.
    pub paused_ram_mb: u64,
    /// Maximum of memory of paused sandboxes that is on disk, together, in MiB.
    pub paused_disk_mb: u64,
    /// Maximum of snapshots.
    pub snapshots: u32,
    /// Maximum of disk of snapshots, and of the sandboxes they were taken of, together, in MiB.
    pub snapshots_mb: u64,
    /// Maximum of volumes.
    pub volumes: u32,
    /// Maximum of traffic of a sandbox in each direction, in megabits per second; 0 is no limit.
    pub bandwidth_mbps: u32,
    /// Maximum of new connections of a sandbox per second; 0 is no limit.
    pub connections_per_second: u32,
}

/// Body of `POST /admin/teams`. Unlike in calls that clients make, a misspelled member is refused: a limit that is not set
/// would go unnoticed.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewTeam {
    /// Display name.
    pub name: String,
    /// Namespace of the templates of the team; derived from the name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slug: Option<String>,
    /// Limits of the team; absent ones are those of every new team.
    #[serde(default)]
    pub limits: LimitsUpdate,
}

/// Body of `PATCH /admin/teams/{id}`; absent members are not changed.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TeamUpdate {
    /// Display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether all requests of the team are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_banned: Option<bool>,
    /// Whether the team may only read and delete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_blocked: Option<bool>,
    /// Reason of the block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_reason: Option<String>,
    /// Limits of the team.
    pub limits: LimitsUpdate,
}

/// The limits of a team to change.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LimitsUpdate {
    /// Maximum session of a sandbox, in hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_length_hours: Option<u64>,
    /// Maximum of concurrent sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_sandboxes: Option<u32>,
    /// Maximum of CPUs of a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_vcpu: Option<u32>,
    /// Maximum of memory of a sandbox, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ram_mb: Option<u64>,
    /// Maximum of disk of a sandbox, and of a volume, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    /// Days that events are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_ttl_days: Option<u32>,
    /// Maximum of paused sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_sandboxes: Option<u32>,
    /// Maximum of paused sandboxes that keep their memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_in_memory: Option<u32>,
    /// Maximum of memory of paused sandboxes together, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_ram_mb: Option<u64>,
    /// Maximum of memory of paused sandboxes that is on disk, together, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_disk_mb: Option<u64>,
    /// Maximum of snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<u32>,
    /// Maximum of disk of snapshots, and of the sandboxes they were taken of, together, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots_mb: Option<u64>,
    /// Maximum of volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<u32>,
    /// Maximum of traffic of a sandbox in each direction, in megabits per second; 0 is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_mbps: Option<u32>,
    /// Maximum of new connections of a sandbox per second; 0 is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_second: Option<u32>,
}

/// The status of a node, which says whether it takes new sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeStatus {
    /// The node takes new sandboxes.
    Ready,
    /// The node takes no new sandboxes, and keeps those it has.
    Draining,
    /// The server of the node is starting.
    Connecting,
    /// The node cannot run sandboxes.
    Unhealthy,
    /// The node waits to be activated.
    Standby,
}

/// Body of `POST /nodes/{id}`.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub struct NodeStatusChange {
    /// New status of the node.
    pub status: NodeStatus,
}

/// A host that runs sandboxes: here always the server's own.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Host name.
    pub id: String,
    /// Id that changes with every start of the server.
    #[serde(rename = "serviceInstanceID")]
    pub service_instance_id: String,
    /// Constant cluster id.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Version of the server.
    pub version: String,
    /// Commit of the server; may be empty.
    pub commit: String,
    /// Processor of the node.
    pub machine_info: MachineInfo,
    /// Status of the node.
    pub status: NodeStatus,
    /// Time since when the status holds.
    pub status_changed_at: Timestamp,
    /// Number of running sandboxes.
    pub sandbox_count: u32,
    /// Number of sandboxes that are being started; only in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_starting_count: Option<u32>,
    /// Number of starts that succeeded since the server started.
    pub create_successes: u64,
    /// Number of starts that failed since the server started.
    pub create_fails: u64,
    /// Maximum number of sandboxes that run at once; older servers do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// Pooled sandboxes, for each template that has any.
    #[serde(default)]
    pub pool: Vec<PooledTemplate>,
    /// Resources in use.
    pub metrics: NodeMetrics,
}

/// The pooled sandboxes of a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PooledTemplate {
    /// Id of the template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Name of the template; empty for a snapshot without a name.
    pub name: String,
    /// Number of sandboxes that are ready.
    pub ready: u64,
    /// Number of sandboxes to keep ready, if there is memory for them.
    pub wanted: u64,
    /// Memory of the sandboxes that are ready, in bytes.
    pub memory_bytes: u64,
    /// Number of starts that found one, since the server started.
    pub hits: u64,
    /// Number of starts that found none.
    pub misses: u64,
}

/// The processor of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineInfo {
    /// Family number, from the kernel.
    pub cpu_family: String,
    /// Model number, from the kernel.
    pub cpu_model: String,
    /// Model name, from the manufacturer.
    pub cpu_model_name: String,
    /// Architecture, e.g. `x86_64`.
    pub cpu_architecture: String,
}

/// The resources of a node and their use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeMetrics {
    /// Number of CPUs allocated to running sandboxes.
    #[serde(rename = "allocatedCPU")]
    pub allocated_cpu: u32,
    /// Usage of all CPUs together since the previous request, in percent.
    pub cpu_percent: u32,
    /// Number of CPUs.
    pub cpu_count: u32,
    /// Memory allocated to running sandboxes, in bytes.
    pub allocated_memory_bytes: u64,
    /// Used memory, in bytes.
    pub memory_used_bytes: u64,
    /// Total memory, in bytes.
    pub memory_total_bytes: u64,
    /// Number of huge pages.
    pub huge_pages_total: u64,
    /// Number of huge pages in use.
    pub huge_pages_used: u64,
    /// Number of huge pages allocated.
    pub huge_pages_reserved: u64,
    /// Size of a huge page, in bytes.
    pub huge_page_size_bytes: u64,
    /// Disks that sandboxes write to.
    pub disks: Vec<Disk>,
}

/// A mounted disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Mount point.
    pub mount_point: String,
    /// Mounted device.
    pub device: String,
    /// Type of the file system.
    pub filesystem_type: String,
    /// Used space, in bytes.
    pub used_bytes: u64,
    /// Total space, in bytes.
    pub total_bytes: u64,
}
