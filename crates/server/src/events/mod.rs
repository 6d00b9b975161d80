//! What happens to sandboxes, written down, and told to whoever asked to be told (contract: dashboard, sections 4 and 5).
//!
//! A change, its event and the deliveries of that are stored together; the [`dispatch`] task works through what is stored. So
//! a stop in between loses nothing and doubles nothing, and an event is told at least once.

mod deliver;
mod dispatch;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use sandcove_wire::api::event::SandboxEvent;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

pub(crate) use deliver::Receivers;
pub use deliver::signature;

use crate::sandboxes::View;
use crate::sandboxes::lifecycle::Session;
use crate::store::Store;
use crate::telemetry::Telemetry;
use crate::{Error, Result, clock};

/// Every type of event there is.
pub const TYPES: [&str; 6] = [
    "sandbox.lifecycle.created",
    "sandbox.lifecycle.updated",
    "sandbox.lifecycle.paused",
    "sandbox.lifecycle.resumed",
    "sandbox.lifecycle.killed",
    "sandbox.lifecycle.checkpointed",
];

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Happened {
    /// It was started from a template.
    Created,
    /// Its end was set.
    TimeoutSet(Timestamp),
    /// What it may reach was set.
    NetworkSet,
    /// It was paused.
    Paused,
    /// It runs again.
    Resumed,
    /// Its files were kept, and it goes on.
    Checkpointed,
    /// It is gone.
    Killed(KillReason),
}

/// Why a sandbox is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillReason {
    /// It ended by itself.
    Unknown,
    /// Somebody asked for it.
    Request,
    /// Its time was up.
    Timeout,
    /// An operator asked for it.
    Admin,
    /// It did not survive a restart of the server or the host.
    Orphaned,
}

impl Happened {
    fn kind(&self) -> &'static str {
        match self {
            Self::Created => TYPES[0],
            Self::TimeoutSet(_) | Self::NetworkSet => TYPES[1],
            Self::Paused => TYPES[2],
            Self::Resumed => TYPES[3],
            Self::Killed(_) => TYPES[4],
            Self::Checkpointed => TYPES[5],
        }
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Created => "create",
            Self::TimeoutSet(_) | Self::NetworkSet => "update",
            Self::Paused => "pause",
            Self::Resumed => "resume",
            Self::Killed(_) => "kill",
            Self::Checkpointed => "checkpoint",
        }
    }
}

impl KillReason {
    /// Its name in the API.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Request => "request",
            Self::Timeout => "timeout",
            Self::Admin => "admin",
            Self::Orphaned => "orphaned",
        }
    }
}

/// Writes down what happened to a sandbox, for what has changed no row of it. It has happened, so a failure to write is
/// logged and nothing more.
pub(crate) async fn record(store: &Store, view: &View, happened: Happened) {
    if let Err(err) = store.insert_event(&describe(view, &happened)).await {
        tracing::error!(sandbox_id = %view.details.id, error = ?err, "an event was not stored");
    }
}

/// Delivers what is and will be stored, and forgets what is old, until it is dropped.
pub(crate) async fn run(store: Store, receivers: Receivers, telemetry: Arc<Telemetry>) {
    dispatch::Dispatcher::new(store, receivers, telemetry).run().await;
}

/// The event of what happened to a sandbox just now.
pub(crate) fn describe(view: &View, happened: &Happened) -> SandboxEvent {
    let now = clock::now();
    let details = &view.details;
    let mut data = Map::new();
    if !details.metadata.is_empty() {
        data.insert("sandbox_metadata".into(), metadata(&details.metadata));
    }
    match happened {
        Happened::Created | Happened::Resumed | Happened::Checkpointed => {}
        Happened::TimeoutSet(end) => {
            data.insert("set_timeout".into(), json!(end));
        }
        Happened::NetworkSet => {
            data.insert("network_egress".into(), egress(view));
        }
        Happened::Paused => {
            data.insert("execution".into(), execution(view, now));
        }
        Happened::Killed(reason) => {
            data.insert("execution".into(), execution(view, now));
            data.insert("kill_reason".into(), json!(reason.text()));
        }
    }
    SandboxEvent {
        id: Uuid::new_v4().to_string(),
        version: "v2".to_owned(),
        kind: happened.kind().to_owned(),
        timestamp: now,
        event_category: "lifecycle".to_owned(),
        event_label: happened.label().to_owned(),
        event_data: (!data.is_empty()).then_some(Value::Object(data)),
        sandbox_id: details.id.to_string(),
        sandbox_execution_id: execution_id(details.id.as_str(), &view.session).to_string(),
        sandbox_template_id: details.source.template_id.to_string(),
        sandbox_build_id: details.source.build_id.to_string(),
        sandbox_team_id: details.team.to_string(),
    }
}

fn metadata(metadata: &BTreeMap<String, String>) -> Value {
    metadata.iter().map(|(key, value)| (key.clone(), json!(value))).collect::<Map<_, _>>().into()
}

fn execution(view: &View, now: Timestamp) -> Value {
    let ran = now.as_millisecond() - view.session.started_at.as_millisecond();
    json!({
        "started_at": view.session.started_at,
        "vcpu_count": view.details.limits.cpus,
        "memory_mb": view.details.limits.memory_mib,
        "execution_time": ran.max(0),
    })
}

fn egress(view: &View) -> Value {
    let network = &view.settings.network;
    let policy = network.policy();
    let given = network.given.as_ref().and_then(|given| given.allow_out.clone()).unwrap_or_default();
    let domains: Vec<_> = given.iter().filter(|entry| !policy.allow_out.contains(entry)).collect();
    let mut denied = policy.deny_out;
    if policy.deny_all {
        denied.push("0.0.0.0/0".to_owned());
    }
    json!({ "allowed_cidrs": policy.allow_out, "denied_cidrs": denied, "allowed_domains": domains })
}

/// One id a session, the same whenever it is asked for.
fn execution_id(sandbox: &str, session: &Session) -> Uuid {
    let text = format!("{sandbox}/{}", session.started_at.as_microsecond());
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// The types a caller names, if they are all known.
pub(crate) fn check_types<S: AsRef<str>>(types: &[S]) -> Result<()> {
    match types.iter().find(|kind| !TYPES.contains(&kind.as_ref())) {
        None => Ok(()),
        Some(other) => Err(Error::Schema(format!(
            "\"{}\" is not a type of event: they are {}",
            other.as_ref(),
            TYPES.join(", ")
        ))),
    }
}
