//! Builds of templates: what a build is made from, its log, and why it failed (contract: templates, sections 5-11).

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandcove_wire::api::build as wire;
use sandcove_wire::api::build::StepMount;
pub use sandcove_wire::api::observe::LogLevel;
use sandcove_wire::api::template::BuildStatus;
use sandcove_wire::id::TemplateId;
use sandcove_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::team::Team;

/// Everything a build is made from, without credentials. Stored with the build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildSpec {
    /// The base of the build.
    pub from: BuildBase,
    /// Steps, in order.
    #[serde(default)]
    pub steps: Vec<BuildStep>,
    /// Command that runs once in every new sandbox.
    #[serde(default)]
    pub start_cmd: Option<String>,
    /// Command that succeeds when a new sandbox is ready.
    #[serde(default)]
    pub ready_cmd: Option<String>,
    /// Whether nothing is taken from the cache, the base included.
    #[serde(default)]
    pub force: bool,
}

/// The base of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildBase {
    /// An OCI image, as the client wrote it.
    Image(String),
    /// A template, as the client wrote it.
    Template(String),
    /// An image in an archive that was uploaded.
    Archive {
        /// Hash of the uploaded file.
        files_hash: String,
        /// The image, if the archive has several.
        #[serde(default)]
        image: Option<String>,
    },
}

/// A step of a build, as the client sent it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildStep {
    /// Type of the step, in any case.
    pub kind: String,
    /// Arguments of the step.
    #[serde(default)]
    pub args: Vec<String>,
    /// Hash of the uploaded files of a `COPY`.
    #[serde(default)]
    pub files_hash: Option<String>,
    /// Whether this step and all later ones are not taken from the cache.
    #[serde(default)]
    pub force: bool,
    /// Mounts of a `RUN`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<StepMount>,
}

/// Secrets of a build by id. Never stored.
pub type BuildSecrets = BTreeMap<String, Vec<u8>>;

/// Credentials for the registry of an image. Never stored.
#[derive(Debug, Clone)]
pub enum RegistryCredentials {
    /// User name and password.
    Basic {
        /// User name.
        username: String,
        /// Password or token.
        password: Secret,
    },
    /// An access key of Amazon's registry.
    Aws {
        /// Id of the access key.
        access_key_id: String,
        /// The access key.
        secret_access_key: Secret,
        /// Region of the registry.
        region: String,
    },
    /// A service account of Google's registries.
    Gcp {
        /// The key file of the service account: JSON as text.
        service_account_json: Secret,
    },
}

impl From<wire::RegistryLogin> for RegistryCredentials {
    fn from(login: wire::RegistryLogin) -> Self {
        match login {
            wire::RegistryLogin::Registry { username, password } => Self::Basic { username, password },
            wire::RegistryLogin::Aws { aws_access_key_id, aws_secret_access_key, aws_region } => Self::Aws {
                access_key_id: aws_access_key_id,
                secret_access_key: aws_secret_access_key,
                region: aws_region,
            },
            wire::RegistryLogin::Gcp { service_account_json } => Self::Gcp { service_account_json },
        }
    }
}

/// The reason why a build failed, stored with the build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildReason {
    /// The error, for the client.
    pub message: String,
    /// Step that failed: `base`, `finalize`, or the number of the step, from 1. Clients accept no other text.
    #[serde(default)]
    pub step: Option<String>,
}

/// An entry of the log of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Time of the entry.
    pub timestamp: Timestamp,
    /// Severity of the entry.
    pub level: LogLevel,
    /// Text of the entry.
    pub message: String,
    /// Step of the entry: `base`, `finalize`, or the number of the step, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// A build that a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBuild {
    /// Name of the template, without namespace.
    pub name: String,
    /// Tags that the build gets when it is ready; at least one.
    pub tags: Vec<String>,
    /// Whole CPUs of sandboxes.
    pub cpu_count: u32,
    /// Memory of sandboxes, MiB.
    pub memory_mib: u64,
    /// Disk of sandboxes, MiB.
    pub disk_mib: u64,
}

/// A build that was inserted: it waits for its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsertedBuild {
    /// The template, which may have existed before.
    pub template_id: TemplateId,
    /// The build.
    pub build_id: Uuid,
    /// Whether other teams may use the template.
    pub public: bool,
    /// Names of the template with namespace.
    pub names: Vec<String>,
    /// Builds of the same template and tags that had not started, and failed because of this one.
    pub superseded: Vec<Uuid>,
}

/// A build that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BegunBuild {
    /// Builds of the same template and tags that were in progress, and failed because of this one.
    pub superseded: Vec<Uuid>,
}

/// A build as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildRow {
    /// The build.
    pub build: Uuid,
    /// The template of the build.
    pub template: TemplateId,
    /// The team that owns the template; none for the server's own.
    pub team: Option<Uuid>,
    /// Name of the template, without namespace; empty for a snapshot without a name.
    pub name: String,
    /// Status of the build.
    pub status: BuildStatus,
    /// Reason why the build failed.
    pub reason: Option<BuildReason>,
    /// Tags that the build gets when it is ready.
    pub tags: Vec<String>,
    /// Whole CPUs of sandboxes.
    pub cpu_count: u32,
    /// Memory of sandboxes, MiB.
    pub memory_mib: u64,
    /// Disk of sandboxes, MiB.
    pub disk_mib: u64,
    /// Time of the request.
    pub created_at: Timestamp,
}

/// A build that was in progress when the server ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedBuild {
    /// The team that owns the template.
    pub team: Team,
    /// The build.
    pub build: Uuid,
    /// The instructions of the build.
    pub spec: BuildSpec,
}
