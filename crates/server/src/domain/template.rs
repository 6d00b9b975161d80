//! Templates, their builds and tags, and what a sandbox gets from its build.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use sandcove_isolate::{Blueprint, Files, Limits};
use sandcove_wire::api::template::BuildStatus;
use sandcove_wire::boot::{Boot, Service};
use sandcove_wire::id::{SandboxId, TemplateId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::team::Team;

/// Processes and threads a sandbox may have.
const MAX_PIDS: u32 = 4096;
/// The host name inside every sandbox.
const HOSTNAME: &str = "e2b";

/// A build of a template: everything a sandbox is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateRecord {
    /// The template of the build; the same for all its builds.
    pub template_id: TemplateId,
    /// The id of the build.
    pub build_id: Uuid,
    /// The template's name, without namespace.
    pub name: String,
    /// Directory names below the backend's layer directory, topmost first.
    pub layers: Vec<String>,
    /// Services that the agent starts and keeps running.
    #[serde(default)]
    pub services: Vec<Service>,
    /// Variables of every process, below those the client gives.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// User of requests that name no user.
    pub default_user: String,
    /// Directory of processes that name no directory; the user's home when unset.
    #[serde(default)]
    pub default_workdir: Option<String>,
    /// Whole CPUs.
    pub cpu_count: u32,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Disk, MiB.
    pub disk_mib: u64,
    /// Version of the agent.
    pub envd_version: String,
    /// Command that runs once in every new sandbox.
    #[serde(default)]
    pub start_cmd: Option<String>,
    /// Command that is polled after the start command, until it succeeds.
    #[serde(default)]
    pub ready_cmd: Option<String>,
    /// The sandbox whose files this build keeps, when it is a snapshot.
    #[serde(default)]
    pub snapshot_of: Option<SandboxId>,
}

impl TemplateRecord {
    /// Whether the record is of a snapshot and not of a build.
    pub fn is_snapshot(&self) -> bool {
        self.snapshot_of.is_some()
    }

    /// The files that sandboxes made from this build begin with.
    pub fn files(&self) -> Files {
        if self.is_snapshot() { Files::Snapshot(self.build_id.to_string()) } else { Files::Empty }
    }

    /// Resource limits of sandboxes made from this build.
    pub fn limits(&self) -> Limits {
        Limits { memory_mib: self.memory_mib, cpus: self.cpu_count, pids: MAX_PIDS, disk_mib: self.disk_mib }
    }

    /// The blueprint that sandboxes made from this build share; the layers are below `layer_dir`.
    pub fn blueprint(&self, layer_dir: &Path) -> Blueprint {
        Blueprint {
            layers: self.layers.iter().map(|layer| layer_dir.join(layer)).collect(),
            limits: self.limits(),
            boot: Boot {
                template_id: self.template_id.to_string(),
                hostname: HOSTNAME.to_owned(),
                // The backend fills these in: it knows the name servers of its network, the warm interpreters and the
                // sandboxes that are created for the pool.
                nameservers: Vec::new(),
                zygote: false,
                warm_up: false,
                services: self.services.clone(),
                env: self.env.clone(),
            },
        }
    }
}

/// A template with the build that one of its tags names.
#[derive(Debug, Clone)]
pub struct Template {
    /// The build that the tag names.
    pub build: TemplateRecord,
    /// Status of the build.
    pub status: BuildStatus,
    /// The team that owns the template; none for the server's own.
    pub team: Option<Uuid>,
    /// Whether other teams may use it.
    pub public: bool,
    /// Sandboxes that were made from the template.
    pub spawn_count: i64,
    /// Time at which the last one was made.
    pub last_spawned_at: Option<Timestamp>,
    /// Builds of the template.
    pub build_count: i64,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

/// A build in a template's history.
#[derive(Debug, Clone)]
pub struct BuildEntry {
    /// The build.
    pub record: TemplateRecord,
    /// Status of the build.
    pub status: BuildStatus,
    /// Time of the request.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Time at which the build ended.
    pub finished_at: Option<Timestamp>,
}

/// A tag of a template.
#[derive(Debug, Clone)]
pub struct TagEntry {
    /// The tag.
    pub tag: String,
    /// The build that the tag names.
    pub build_id: Uuid,
    /// Time at which the tag was set.
    pub created_at: Timestamp,
}

impl Template {
    /// Whether `team` may make sandboxes from the template.
    pub fn is_usable_by(&self, team: &Team) -> bool {
        self.public || self.is_owned_by(team)
    }

    /// Whether `team` owns the template.
    pub fn is_owned_by(&self, team: &Team) -> bool {
        self.team == Some(team.id)
    }
}
