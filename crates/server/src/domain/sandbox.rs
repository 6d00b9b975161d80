//! The record of a sandbox: fixed at creation ([`Details`]), changeable ([`Settings`]), and as the store keeps it
//! ([`Stored`]).

use std::collections::BTreeMap;
use std::time::Duration;

use sandcove_isolate::{Limits, Mount, Rates};
use sandcove_wire::id::{SandboxId, TemplateId};
use sandcove_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::identity::Tokens;
use super::lifecycle::{Keep, OnExpiry, Session};
use super::network::NetworkRules;
use super::template::TemplateRecord;

/// The part of a sandbox that never changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Details {
    /// The sandbox's id.
    pub id: SandboxId,
    /// The team that owns the sandbox.
    pub team: Uuid,
    /// The template build that the sandbox was made from.
    #[serde(flatten)]
    pub build: Build,
    /// Resource limits.
    pub limits: Limits,
    /// Labels given by the client.
    pub metadata: BTreeMap<String, String>,
    /// Variables given by the client, without the template's.
    pub env_vars: BTreeMap<String, String>,
    /// The token of requests to the agent; unique among all sandboxes, so that it also identifies the sandbox.
    pub access_token: Secret,
    /// Whether the agent refuses requests without the token.
    #[serde(rename = "token_required")]
    pub token_policy: TokenPolicy,
    /// Whether the code interpreter refuses to run code for requests without the token. Not so in rows of earlier servers.
    #[serde(rename = "interpreter_token_required", default)]
    pub interpreter_policy: TokenPolicy,
    /// Whether a client of the first generation created the sandbox: it looks for its services on other ports.
    #[serde(default)]
    pub legacy: bool,
    /// The token that other ports demand, if any.
    pub traffic_token: Option<Secret>,
    /// The timeout given at creation.
    pub timeout: Duration,
    /// Whether traffic resumes the sandbox.
    pub auto_resume: bool,
    /// Opaque to the server; returned as given.
    pub mcp: Option<serde_json::Value>,
    /// Mounted volumes.
    #[serde(default)]
    pub mounts: Vec<VolumeMount>,
    /// Tokens of the sandbox's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// Limits on the sandbox's traffic.
    #[serde(default, skip_serializing_if = "Rates::is_unlimited")]
    pub rates: Rates,
}

/// Whether a service refuses requests without the token. Every sandbox has a token: the requests of some clients identify
/// it by nothing else. Stored as whether the token is required.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum TokenPolicy {
    /// Requests without the token are refused.
    Required,
    /// Requests without the token are let in; clients before 1.5 cannot send it.
    #[default]
    Optional,
}

impl TokenPolicy {
    /// Whether requests without the token are refused.
    pub fn is_required(self) -> bool {
        self == Self::Required
    }
}

impl From<bool> for TokenPolicy {
    fn from(is_required: bool) -> Self {
        if is_required { Self::Required } else { Self::Optional }
    }
}

impl From<TokenPolicy> for bool {
    fn from(policy: TokenPolicy) -> Self {
        policy.is_required()
    }
}

/// A volume mounted in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMount {
    /// The volume's name when the sandbox was created.
    pub name: String,
    /// The volume and its mount point.
    #[serde(flatten)]
    pub mount: Mount,
}

/// The template build that a sandbox was made from.
///
/// Rows have been written in three forms: with a summary under `source`, with the same summary and the whole record under
/// `build`, and with the record alone. All of them can be read; the last one is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "StoredBuild")]
pub enum Build {
    /// The whole record, which a start from files and a snapshot need.
    #[serde(rename = "build")]
    Record(Box<TemplateRecord>),
    /// The summary that servers without snapshots stored; the row of the build may still have the whole record.
    #[serde(rename = "source")]
    Summary(BuildSummary),
}

/// The summary of a template build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildSummary {
    /// The template.
    pub template_id: TemplateId,
    /// The build.
    pub build_id: Uuid,
    /// The template's name without namespace; may be empty.
    pub alias: String,
    /// Version of the agent.
    pub envd_version: String,
}

/// The members of a row that speak of the build.
#[derive(Deserialize)]
struct StoredBuild {
    #[serde(default)]
    build: Option<Box<TemplateRecord>>,
    #[serde(default)]
    source: Option<BuildSummary>,
}

/// A row of a sandbox names no build.
#[derive(Debug, thiserror::Error)]
#[error("missing field `build`")]
struct BuildMissing;

impl TryFrom<StoredBuild> for Build {
    type Error = BuildMissing;

    fn try_from(stored: StoredBuild) -> Result<Self, BuildMissing> {
        match stored {
            StoredBuild { build: Some(record), .. } => Ok(Self::Record(record)),
            StoredBuild { source: Some(summary), .. } => Ok(Self::Summary(summary)),
            StoredBuild { build: None, source: None } => Err(BuildMissing),
        }
    }
}

impl Build {
    /// The whole record, if it is known.
    pub fn record(&self) -> Option<&TemplateRecord> {
        match self {
            Self::Record(record) => Some(record),
            Self::Summary(_) => None,
        }
    }

    /// The template.
    pub fn template_id(&self) -> &TemplateId {
        match self {
            Self::Record(record) => &record.template_id,
            Self::Summary(summary) => &summary.template_id,
        }
    }

    /// The id of the build.
    pub fn id(&self) -> Uuid {
        match self {
            Self::Record(record) => record.build_id,
            Self::Summary(summary) => summary.build_id,
        }
    }

    /// The template's name without namespace; may be empty.
    pub fn alias(&self) -> &str {
        match self {
            Self::Record(record) => &record.name,
            Self::Summary(summary) => &summary.alias,
        }
    }

    /// Version of the agent.
    pub fn envd_version(&self) -> &str {
        match self {
            Self::Record(record) => &record.envd_version,
            Self::Summary(summary) => &summary.envd_version,
        }
    }
}

/// The part of a sandbox that requests may change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// The transition at the end of a session.
    pub on_expiry: OnExpiry,
    /// Rules for traffic from and to the sandbox.
    pub network: NetworkRules,
    /// Whether the server has released the memory of the paused sandbox: traffic still resumes it, from its files.
    #[serde(default)]
    pub demoted: bool,
    /// Size of the paused sandbox's memory on disk, bytes; none when it is in the host's memory, or gone.
    #[serde(default)]
    pub parked: Option<u64>,
    /// Whether the agent did not answer when the sandbox was paused: its memory would bring that agent back, and is not resumed.
    #[serde(default)]
    pub unresponsive: bool,
}

/// The states worth storing; every other phase leads to one of them or to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredState {
    /// The sandbox's processes run.
    Running,
    /// The sandbox's processes are frozen, or gone.
    Paused(Keep),
}

/// A sandbox as the store keeps it.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The part that never changes.
    pub details: Details,
    /// The part that requests may change.
    pub settings: Settings,
    /// The stored state.
    pub state: StoredState,
    /// The present session, or the last one of a paused sandbox.
    pub session: Session,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const BUILD_ID: &str = "00000000-0000-0000-0000-000000000001";

    /// The members that every row has had from the beginning.
    fn row(extra: &Value) -> String {
        let mut row = json!({
            "id": "i0000000000000000000a",
            "team": BUILD_ID,
            "limits": { "memory_mib": 512, "cpus": 2, "pids": 100, "disk_mib": 1024 },
            "metadata": { "a": "b" },
            "env_vars": {},
            "access_token": "token",
            "token_required": true,
            "traffic_token": null,
            "timeout": { "secs": 60, "nanos": 0 },
            "auto_resume": false,
            "mcp": null,
        });
        row.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        row.to_string()
    }

    fn source() -> Value {
        json!({
            "template_id": "base0000000000000000", "build_id": BUILD_ID, "alias": "base", "envd_version": "0.6.13",
        })
    }

    fn build() -> Value {
        json!({
            "template_id": "base0000000000000000", "build_id": BUILD_ID, "name": "base", "layers": ["top"],
            "default_user": "user", "cpu_count": 2, "memory_mib": 512, "disk_mib": 1024, "envd_version": "0.6.13",
        })
    }

    #[test]
    fn rows_of_all_servers_before_this_one_are_read() {
        for (extra, is_whole) in [
            (json!({ "source": source() }), false),
            (json!({ "source": source(), "build": null }), false),
            (json!({ "source": source(), "build": build(), "mounts": [] }), true),
            (json!({ "build": build(), "source": source() }), true),
            (json!({ "build": build() }), true),
        ] {
            let details: Details = serde_json::from_str(&row(&extra)).unwrap();
            assert_eq!(details.build.record().is_some(), is_whole, "{extra}");
            assert_eq!(details.build.template_id().as_str(), "base0000000000000000");
            assert_eq!(details.build.id().to_string(), BUILD_ID);
            assert_eq!((details.build.alias(), details.build.envd_version()), ("base", "0.6.13"));
            assert_eq!(details.token_policy, TokenPolicy::Required);
            assert_eq!(details.interpreter_policy, TokenPolicy::Optional);
            assert!(!details.legacy);
            assert_eq!((details.metadata["a"].as_str(), details.timeout.as_secs()), ("b", 60));
        }
        assert!(serde_json::from_str::<Details>(&row(&json!({}))).is_err());
    }

    #[test]
    fn the_build_is_written_once_and_read_back() {
        for extra in [json!({ "source": source(), "build": build() }), json!({ "source": source() })] {
            let details: Details = serde_json::from_str(&row(&extra)).unwrap();
            let written = serde_json::to_value(&details).unwrap();
            assert_eq!(written["token_required"], json!(true));
            assert!(written.get("build").is_some() != written.get("source").is_some(), "{written}");
            let again: Details = serde_json::from_value(written).unwrap();
            assert_eq!(again.build.record(), details.build.record());
        }
    }
}
