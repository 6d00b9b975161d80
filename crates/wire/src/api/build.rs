//! Builds of templates: requests, start, status, logs and uploads (contract: templates, sections 5-8).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::observe::LogLevel;
use super::template::BuildStatus;
use crate::secret::Secret;

/// Body of `POST /v3/templates`, and of `POST /v2/templates`, which knows `alias` and no tags.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NewTemplate {
    /// Name of the template: `[namespace/]alias[:tag]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Tags of the build, beside that of the name; `default` when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// Number of CPUs of sandboxes; default 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_count: Option<i64>,
    /// Memory of sandboxes, in MiB; default 1024.
    #[serde(rename = "memoryMB", skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<i64>,
    /// Wanted free disk space after the steps, in MiB; default: that of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_free_disk_mb: Option<i64>,
    /// Team of the template; must be that of the credentials.
    #[serde(rename = "teamID", skip_serializing_if = "Option::is_none")]
    pub team_id: Option<String>,
    /// Old spelling of `name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
}

/// Answer of `POST /v3/templates`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestedBuild {
    /// Id of the template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Id of the build; UUID.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// Whether other teams may use the template.
    pub public: bool,
    /// Names with namespace.
    pub names: Vec<String>,
    /// Tags that the build gets when it is ready.
    pub tags: Vec<String>,
    /// Names without namespace.
    pub aliases: Vec<String>,
}

/// Body of `POST /v2/templates/{id}/builds/{build}`. Exactly one of `from_image`, `from_template` and
/// `from_archive` must be given.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StartBuild {
    /// Image to start from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_image: Option<String>,
    /// Template to start from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_template: Option<String>,
    /// Uploaded archive with an image to start from; an addition of this server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_archive: Option<ArchiveSource>,
    /// Credentials for the registry of the image; ignored with `from_template`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_image_registry: Option<RegistryLogin>,
    /// Steps, in order.
    pub steps: Vec<TemplateStep>,
    /// Whether nothing is taken from the cache.
    pub force: Option<bool>,
    /// Command that runs once in every new sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_cmd: Option<String>,
    /// Command that succeeds when a new sandbox is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_cmd: Option<String>,
    /// Secrets for the mounts of `RUN` steps by id, in base64. They are never stored.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, Secret>,
}

/// An archive of an OCI layout or of `docker save` that was uploaded as a file set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchiveSource {
    /// Hash that the archive was uploaded with: 64 hexadecimal digits.
    pub files_hash: String,
    /// Name, tag or digest of the image, if the archive has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// Credentials for a registry of images.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum RegistryLogin {
    /// User name and password.
    Registry {
        /// User name.
        username: String,
        /// Password or token.
        password: Secret,
    },
    /// An access key of Amazon's registry.
    #[serde(rename_all = "camelCase")]
    Aws {
        /// Id of the access key.
        aws_access_key_id: String,
        /// The access key.
        aws_secret_access_key: Secret,
        /// Region of the registry.
        aws_region: String,
    },
    /// A service account of Google's registries.
    #[serde(rename_all = "camelCase")]
    Gcp {
        /// The key file of the service account: JSON as text.
        service_account_json: Secret,
    },
}

/// Body of `POST /templates/gc`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CollectGarbage {
    /// Whether nothing is deleted, and the answer says what would be.
    pub dry_run: bool,
}

/// Answer of `POST /templates/gc`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Garbage {
    /// Whether nothing was deleted.
    pub dry_run: bool,
    /// Files of cached build steps.
    pub steps: Vec<GarbageItem>,
    /// Layers of deleted templates and of images.
    pub layers: Vec<GarbageItem>,
    /// Number of uploaded archives.
    pub uploads: usize,
    /// Space that this takes, with the uploads, bytes. Data that something else shares does not count.
    pub bytes: u64,
}

/// A layer or a directory of files that no template, build or sandbox uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GarbageItem {
    /// Name on the disk of the server.
    pub name: String,
    /// Space that only this takes, bytes.
    pub bytes: u64,
}

/// A step of a build. Unknown members are ignored: clients send some that concern only themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateStep {
    /// Type of the step: `RUN`, `COPY`, `ADD`, `ENV`, `ARG`, `WORKDIR` or `USER`, in any case.
    #[serde(rename = "type")]
    pub kind: String,
    /// Arguments of the step.
    #[serde(default)]
    pub args: Vec<String>,
    /// Hash of the uploaded files of a `COPY`: 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_hash: Option<String>,
    /// Whether this step and all later ones are not taken from the cache.
    #[serde(default)]
    pub force: Option<bool>,
    /// Mounts of a `RUN`. Clients of E2B send none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<StepMount>,
}

/// A mount of a `RUN` step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum StepMount {
    /// Uploaded files.
    Bind {
        /// Absolute path in the sandbox, at which nothing is, or an empty directory.
        target: String,
        /// Path within the uploaded files.
        source: String,
        /// Hash of the uploaded files: 64 hexadecimal digits.
        files_hash: String,
    },
    /// A secret of the build.
    Secret {
        /// Id of the secret.
        id: String,
        /// Absolute path of a file with the secret.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
        /// Name of a variable with the secret.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        env: Option<String>,
        /// Owner of the file as `user:group`, by number; root when unset.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
        /// Mode of the file in octal; 0400 when unset.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
        /// Whether the step fails if the build has no such secret.
        #[serde(default)]
        required: bool,
    },
}

/// Answer of `GET /templates/{id}/builds/{build}/status`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildInfo {
    /// Id of the template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Id of the build; UUID.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// Status of the build.
    pub status: BuildStatus,
    /// Log as text; always empty.
    pub logs: Vec<String>,
    /// A page of the log, the oldest entry first.
    pub log_entries: Vec<BuildLogEntry>,
    /// Reason why the build failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<BuildReason>,
}

/// Why a build failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildReason {
    /// The error.
    pub message: String,
    /// Step that failed: `base`, `finalize`, or the number of the step, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Warnings and errors in the log of that step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_entries: Vec<BuildLogEntry>,
}

/// An entry of the log of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildLogEntry {
    /// Time of the entry.
    pub timestamp: Timestamp,
    /// Text of the entry.
    pub message: String,
    /// Severity of the entry.
    pub level: LogLevel,
    /// Step of the entry: `base`, `finalize`, or the number of the step, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// Answer of `GET /templates/{id}/builds/{build}/logs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildLogs {
    /// Entries in the requested direction.
    pub logs: Vec<BuildLogEntry>,
}

/// Answer of `GET /templates/{id}/files/{hash}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadLink {
    /// Whether the server has the files already.
    pub present: bool,
    /// Where to `PUT` the archive of the files, without an API key; valid for 30 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers that the upload must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
}
