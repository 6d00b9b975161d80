//! Templates, their builds and tags, and what a sandbox gets from its build.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use sandcove_isolate::{Blueprint, Files, Limits};
use sandcove_wire::api::template::BuildStatus;
use sandcove_wire::boot::{Boot, Service};
use sandcove_wire::id::{SandboxId, TemplateId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::team::Team;
pub use crate::error::ON_REQUEST;

/// Processes and threads a sandbox may have.
pub(crate) const MAX_PIDS: u32 = 1024;
/// The host name inside every sandbox.
const HOSTNAME: &str = "e2b.local";

/// A build of a template: everything a sandbox is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateRecord {
    /// The template of the build; the same for all its builds.
    pub template_id: TemplateId,
    /// The id of the build.
    pub build_id: Uuid,
    /// The template's name, without namespace.
    pub name: String,
    /// Directory names below the host side's layer directory, topmost first.
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
    /// Variables at the end of the build: the start command and the ready command have them, and builds from this template
    /// begin with them. Other processes of sandboxes do not get them.
    #[serde(default)]
    pub build_env: BTreeMap<String, String>,
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
    /// Size of the memory that this build keeps, bytes, when it is a snapshot with memory.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// State after the start command, if it is kept.
    #[serde(default)]
    pub started: Option<Started>,
}

/// State after a start command: files and memory that sandboxes of a build continue from. Builds with the same files and commands share it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Name of the snapshot that has it.
    pub snapshot: String,
    /// Size of its memory, bytes.
    pub memory_bytes: u64,
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

    /// The blueprint that sandboxes made from this build share; its layers are paths below the directory of layers.
    pub fn blueprint(&self) -> Blueprint {
        self.blueprint_with(self.limits())
    }

    /// The blueprint of sandboxes with other limits. Memory was stored under those of the build, and fits no others.
    pub fn blueprint_with(&self, limits: Limits) -> Blueprint {
        let started = self.started.as_ref().filter(|_| limits == self.limits());
        Blueprint {
            layers: self.layers.iter().map(PathBuf::from).collect(),
            limits,
            boot: Boot { services: self.services.clone(), env: self.env.clone(), ..boot(&self.template_id) },
            started: started.map(|started| started.snapshot.clone()),
        }
    }
}

/// The boot message of sandboxes without services and variables.
pub(crate) fn boot(template: &TemplateId) -> Boot {
    Boot {
        template_id: template.to_string(),
        hostname: HOSTNAME.to_owned(),
        // The host side fills these in: it knows the name servers of its network, the warm interpreters and the sandboxes that
        // are created for the pool.
        nameservers: Vec::new(),
        zygote: false,
        warm_up: false,
        services: Vec::new(),
        env: BTreeMap::new(),
    }
}

/// A template without its builds.
#[derive(Debug, Clone)]
pub struct TemplateInfo {
    /// The id.
    pub id: TemplateId,
    /// Name without namespace; empty for a snapshot without a name.
    pub name: String,
    /// The team that owns the template; none for the server's own.
    pub team: Option<Uuid>,
    /// Namespace of the name: the slug of that team.
    pub namespace: Option<String>,
    /// Name without namespace in every team that has no template of that name.
    pub global_name: Option<String>,
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

/// A template with a ready build that a reference names.
#[derive(Debug, Clone)]
pub struct Template {
    /// The template.
    pub info: TemplateInfo,
    /// The build.
    pub build: TemplateRecord,
}

/// A template with the ready build of the tag `default`, if there is one.
#[derive(Debug, Clone)]
pub struct ListedTemplate {
    /// The template.
    pub info: TemplateInfo,
    /// The build.
    pub build: Option<TemplateRecord>,
    /// Status of the newest build that has the tag or is to get it.
    pub status: BuildStatus,
    /// Whether the template is a snapshot.
    pub is_snapshot: bool,
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

/// An assignment of a tag to a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagAssignment {
    /// The tag.
    pub tag: String,
    /// The build.
    pub build_id: Uuid,
    /// Time of the assignment.
    pub assigned_at: Timestamp,
    /// Time at which the build was requested.
    pub build_created_at: Timestamp,
    /// Time at which the build ended.
    pub build_finished_at: Option<Timestamp>,
}

impl TemplateInfo {
    /// Whether `team` may make sandboxes from the template.
    pub fn is_usable_by(&self, team: &Team) -> bool {
        self.public || self.is_owned_by(team)
    }

    /// Whether `team` owns the template.
    pub fn is_owned_by(&self, team: &Team) -> bool {
        self.team == Some(team.id)
    }

    /// The names without namespace; none for a snapshot without a name.
    pub fn aliases(&self) -> Vec<String> {
        Some(self.name.clone()).into_iter().filter(|name| !name.is_empty()).collect()
    }

    /// The names with namespace, and the one that every team can use.
    pub fn names(&self) -> Vec<String> {
        let full = |name: String| match &self.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name,
        };
        self.aliases().into_iter().map(full).chain(self.global_name.clone()).collect()
    }
}
