//! What is known about a sandbox: fixed at birth ([`Details`]), changeable ([`Settings`]), and of the moment ([`View`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandcove_isolate::{Limits, Mount};
use sandcove_wire::id::{SandboxId, TemplateId};
use sandcove_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::lifecycle::{Keep, OnExpiry, Phase, Session};
use super::live::Live;
use super::network::NetworkRules;
use crate::templates::TemplateRecord;

/// What never changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Details {
    /// Its id.
    pub id: SandboxId,
    /// The team that owns it.
    pub team: Uuid,
    /// What it was made from.
    pub source: Source,
    /// The same in full, to start it again from its files. None in what servers before snapshots wrote down: the row of
    /// the build says it then.
    #[serde(default)]
    pub build: Option<TemplateRecord>,
    /// Its limits.
    pub limits: Limits,
    /// The user's own labels.
    pub metadata: BTreeMap<String, String>,
    /// Variables the user gave, without the template's.
    pub env_vars: BTreeMap<String, String>,
    /// What agent requests carry; unique among all sandboxes, so that it also finds the sandbox.
    pub access_token: Secret,
    /// Whether the agent demands it.
    pub token_required: bool,
    /// What other ports demand, if anything.
    pub traffic_token: Option<Secret>,
    /// The timeout it was made with.
    pub timeout: Duration,
    /// Whether traffic wakes it.
    pub auto_resume: bool,
    /// Opaque; kept as given.
    pub mcp: Option<serde_json::Value>,
    /// Volumes it sees.
    #[serde(default)]
    pub mounts: Vec<VolumeMount>,
}

/// A volume a sandbox sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMount {
    /// The volume's name, as it was when the sandbox was made.
    pub name: String,
    /// The volume itself, and where it is seen.
    #[serde(flatten)]
    pub seen: Mount,
}

/// The template build a sandbox was made from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Source {
    /// The template.
    pub template_id: TemplateId,
    /// The build.
    pub build_id: Uuid,
    /// The template's name without namespace; may be empty.
    pub alias: String,
    /// Version of the agent.
    pub envd_version: String,
}

/// What requests may change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// What happens when time is up.
    pub on_expiry: OnExpiry,
    /// What it may reach and how it is reached.
    pub network: NetworkRules,
}

/// A sandbox at one moment.
#[derive(Debug, Clone)]
pub struct View {
    /// What never changes.
    pub details: Arc<Details>,
    /// What requests may change.
    pub settings: Arc<Settings>,
    /// Where it is in its life.
    pub phase: Phase,
    /// The present session; of a paused one the last, ended by the pause.
    pub session: Session,
    /// The way in, while it runs.
    pub(crate) live: Option<Arc<Live>>,
}

impl View {
    /// A sandbox that nothing runs any more.
    pub(super) fn of_stored(stored: &Stored) -> Self {
        Self {
            details: Arc::new(stored.details.clone()),
            settings: Arc::new(stored.settings.clone()),
            phase: Phase::Gone,
            session: stored.session,
            live: None,
        }
    }

    /// Whether callers see it at all.
    pub fn is_visible(&self) -> bool {
        !matches!(self.phase, Phase::Stopping | Phase::Gone)
    }

    /// Whether callers see it as paused.
    pub fn is_paused(&self) -> bool {
        matches!(self.phase, Phase::Pausing(_) | Phase::Paused(_))
    }
}

/// The states worth storing: every other one is on its way to one of them or to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredState {
    /// Its processes run.
    Running,
    /// They are frozen, or gone.
    Paused(Keep),
}

/// A sandbox as the store keeps it.
#[derive(Debug, Clone)]
pub struct Stored {
    /// What never changes.
    pub details: Details,
    /// What requests may change.
    pub settings: Settings,
    /// Where it is in its life.
    pub state: StoredState,
    /// The present or last session.
    pub session: Session,
}
