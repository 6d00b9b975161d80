//! Templates: names and tags, and what a sandbox made from one is given.

mod reference;

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use sandcove_isolate::{Backend, Blueprint, Files, Limits};
use sandcove_wire::api::template::BuildStatus;
use sandcove_wire::boot::{Boot, Service};
use sandcove_wire::id::{SandboxId, TemplateId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use reference::{InvalidReference, Reference};

use crate::store::Store;
use crate::teams::Team;
use crate::{Error, Result};

/// Processes and threads a sandbox may have.
const MAX_PIDS: u32 = 4096;
/// The name every sandbox knows itself by.
const HOSTNAME: &str = "e2b";

/// One build of a template: everything a sandbox is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateRecord {
    /// The template it belongs to; stable over builds.
    pub template_id: TemplateId,
    /// This build.
    pub build_id: Uuid,
    /// The template's name, without namespace.
    pub name: String,
    /// Directory names below the backend's layer directory, topmost first.
    pub layers: Vec<String>,
    /// What the agent starts and keeps running.
    #[serde(default)]
    pub services: Vec<Service>,
    /// Variables of every process; the user's own come on top.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// User of requests that name none.
    pub default_user: String,
    /// Directory of processes that name none; the user's home when unset.
    #[serde(default)]
    pub default_workdir: Option<String>,
    /// Whole CPUs.
    pub cpu_count: u32,
    /// MiB.
    pub memory_mib: u64,
    /// MiB.
    pub disk_mib: u64,
    /// Version of the agent.
    pub envd_version: String,
    /// Run once in every new sandbox.
    #[serde(default)]
    pub start_cmd: Option<String>,
    /// Polled until it succeeds, after the start command.
    #[serde(default)]
    pub ready_cmd: Option<String>,
    /// The sandbox whose files this build keeps, when it is a snapshot.
    #[serde(default)]
    pub snapshot_of: Option<SandboxId>,
}

impl TemplateRecord {
    /// Whether it is a snapshot of a sandbox and not built.
    pub fn is_snapshot(&self) -> bool {
        self.snapshot_of.is_some()
    }

    /// The files its sandboxes begin with.
    pub fn files(&self) -> Files {
        if self.is_snapshot() { Files::Snapshot(self.build_id.to_string()) } else { Files::Empty }
    }

    /// What a sandbox made from it may use.
    pub fn limits(&self) -> Limits {
        Limits { memory_mib: self.memory_mib, cpus: self.cpu_count, pids: MAX_PIDS, disk_mib: self.disk_mib }
    }

    /// What sandboxes made from it have in common; its layers are below `layer_dir`.
    pub fn blueprint(&self, layer_dir: &Path) -> Blueprint {
        Blueprint {
            layers: self.layers.iter().map(|layer| layer_dir.join(layer)).collect(),
            limits: self.limits(),
            boot: Boot {
                template_id: self.template_id.to_string(),
                hostname: HOSTNAME.to_owned(),
                // The backend knows which name servers its network reaches, what is warm, and when there is time.
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
    /// That build.
    pub build: TemplateRecord,
    /// How far it is.
    pub status: BuildStatus,
    /// The owner; none for the server's own.
    pub team: Option<Uuid>,
    /// Whether other teams may use it.
    pub public: bool,
    /// How many sandboxes were made from it.
    pub spawn_count: i64,
    /// When the last one was.
    pub last_spawned_at: Option<Timestamp>,
    /// How many builds it has.
    pub build_count: i64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// One build in a template's history.
#[derive(Debug, Clone)]
pub struct BuildEntry {
    /// What was built.
    pub record: TemplateRecord,
    /// How far it is.
    pub status: BuildStatus,
    /// When it was requested.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// A tag of a template.
#[derive(Debug, Clone)]
pub struct TagEntry {
    /// The tag.
    pub tag: String,
    /// The build it names.
    pub build_id: Uuid,
    /// When it was set.
    pub created_at: Timestamp,
}

impl Template {
    /// Whether `team` may make sandboxes from it.
    pub fn is_usable_by(&self, team: &Team) -> bool {
        self.public || self.is_owned_by(team)
    }

    /// Whether `team` owns it.
    pub fn is_owned_by(&self, team: &Team) -> bool {
        self.team == Some(team.id)
    }
}

/// The templates of this server.
#[derive(Clone)]
pub struct Templates {
    store: Store,
    backend: Backend,
}

impl Templates {
    pub(crate) fn new(store: Store, backend: Backend) -> Self {
        Self { store, backend }
    }

    /// Registers one of the server's own templates, or a new build of it, under the tag `default`. Public, owned by no
    /// team. Calling it again with the same build changes nothing. Sandboxes of it are made ahead from now on.
    pub async fn upsert_builtin(&self, record: TemplateRecord) -> Result<()> {
        self.store.upsert_builtin(&record).await?;
        self.backend.keep_ready(record.blueprint(&self.backend.layer_dir()));
        Ok(())
    }

    /// The template and build a reference names, for `team` (contract: control-plane, section 4.2). Private templates
    /// of others are not found.
    pub async fn resolve(&self, team: &Team, reference: &Reference) -> Result<Template> {
        let template = self.look_up(team, reference).await?;
        if template.is_usable_by(team) {
            Ok(template)
        } else {
            Err(Error::TemplateNotFound(reference.to_string()))
        }
    }

    /// As [`Templates::resolve`], but says so when the template is there and private.
    pub async fn resolve_or_forbid(&self, team: &Team, reference: &Reference) -> Result<Template> {
        let template = self.look_up(team, reference).await?;
        if template.is_usable_by(team) {
            Ok(template)
        } else {
            Err(Error::TemplateForbidden(reference.to_string()))
        }
    }

    async fn look_up(&self, team: &Team, reference: &Reference) -> Result<Template> {
        let missing = || Error::TemplateNotFound(reference.to_string());
        let id = self.store.template_id(team, reference).await?.ok_or_else(missing)?;
        let tag = reference.tag();
        self.store
            .template(&id, tag)
            .await?
            .ok_or_else(|| Error::TagNotFound { template: reference.without_tag(), tag: tag.to_owned() })
    }

    /// The id a reference names, whatever its tag; `None` when nothing the team may use has it.
    pub async fn find_id(&self, team: &Team, reference: &Reference) -> Result<Option<TemplateId>> {
        self.store.template_id(team, reference).await
    }

    /// The team's own templates and the server's, newest first; no snapshots.
    pub async fn list(&self, team: &Team) -> Result<Vec<Template>> {
        let mut templates = self.store.templates(team).await?;
        templates.retain(|template| !template.build.is_snapshot());
        Ok(templates)
    }

    /// Every build of a template, newest first.
    pub async fn builds(&self, id: &TemplateId) -> Result<Vec<BuildEntry>> {
        self.store.template_builds(id).await
    }

    /// Every tag of a template, newest first.
    pub async fn tags(&self, id: &TemplateId) -> Result<Vec<TagEntry>> {
        self.store.template_tags(id).await
    }
}
