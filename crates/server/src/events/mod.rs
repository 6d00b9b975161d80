//! Events of sandboxes, and their delivery to webhooks (contract: dashboard, sections 4 and 5).
//!
//! A change, its event and the deliveries of the event are stored in one transaction; the [`dispatch`] task works through
//! the stored deliveries. A crash loses no event and stores none twice, and an event is delivered at least once.

mod deliver;
mod dispatch;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use sandcove_wire::api::event::SandboxEvent;
use sandcove_wire::api::sandbox::PauseMode;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

pub(crate) use deliver::Receivers;
pub use deliver::signature;

use crate::clock;
use crate::domain::event::LifecycleEvent;
use crate::domain::lifecycle::{Keep, Session};
use crate::domain::network::NetworkRules;
use crate::domain::sandbox::Details;
use crate::store::Store;
use crate::telemetry::Telemetry;

/// Stores an event of a change that has no row. The change is done, so a failure is only logged.
pub(crate) async fn record(store: &Store, event: &SandboxEvent) {
    if let Err(err) = store.insert_event(event).await {
        tracing::error!(sandbox_id = %event.sandbox_id, error = ?err, "an event was not stored");
    }
}

/// Delivers stored events to webhooks and deletes old ones, until the task is dropped.
pub(crate) async fn run(store: Store, receivers: Receivers, telemetry: Arc<Telemetry>) {
    dispatch::Dispatcher::new(store, receivers, telemetry).run().await;
}

/// The API's description of an event that a sandbox has just had in `session`.
pub(crate) fn describe(
    details: &Details,
    session: &Session,
    network: &NetworkRules,
    event: &LifecycleEvent,
) -> SandboxEvent {
    let now = clock::now();
    let mut data = Map::new();
    if !details.metadata.is_empty() {
        data.insert("sandbox_metadata".into(), metadata(&details.metadata));
    }
    match event {
        LifecycleEvent::Created | LifecycleEvent::Resumed => {}
        LifecycleEvent::Checkpointed(kept) => {
            let mode = match kept {
                Keep::Memory => PauseMode::Full,
                Keep::Files => PauseMode::Filesystem,
            };
            data.insert("snapshot_mode".into(), json!(mode));
        }
        LifecycleEvent::StartedFromFiles => {
            data.insert("start_mode".into(), json!(PauseMode::Filesystem));
        }
        LifecycleEvent::TimeoutSet(end) => {
            data.insert("set_timeout".into(), json!(end));
        }
        LifecycleEvent::NetworkSet => {
            data.insert("network_egress".into(), egress(network));
        }
        LifecycleEvent::Demoted => {
            data.insert("pause_mode".into(), json!(PauseMode::Filesystem));
        }
        LifecycleEvent::Paused => {
            data.insert("execution".into(), execution(details, session, now));
        }
        LifecycleEvent::Killed(reason) => {
            data.insert("execution".into(), execution(details, session, now));
            data.insert("kill_reason".into(), json!(reason.text()));
        }
    }
    SandboxEvent {
        id: Uuid::new_v4().to_string(),
        version: "v2".to_owned(),
        kind: event.kind().to_owned(),
        timestamp: now,
        event_category: "lifecycle".to_owned(),
        event_label: event.label().to_owned(),
        event_data: (!data.is_empty()).then_some(Value::Object(data)),
        sandbox_id: details.id.to_string(),
        sandbox_execution_id: execution_id(details.id.as_str(), session).to_string(),
        sandbox_template_id: details.build.template_id().to_string(),
        sandbox_build_id: details.build.id().to_string(),
        sandbox_team_id: details.team.to_string(),
    }
}

fn metadata(metadata: &BTreeMap<String, String>) -> Value {
    metadata.iter().map(|(key, value)| (key.clone(), json!(value))).collect::<Map<_, _>>().into()
}

fn execution(details: &Details, session: &Session, now: Timestamp) -> Value {
    let ran = now.as_millisecond() - session.started_at.as_millisecond();
    json!({
        "started_at": session.started_at,
        "vcpu_count": details.limits.cpus,
        "memory_mb": details.limits.memory_mib,
        "execution_time": ran.max(0),
    })
}

fn egress(network: &NetworkRules) -> Value {
    let policy = network.policy();
    let given = network.given.as_ref().and_then(|given| given.allow_out.clone()).unwrap_or_default();
    let domains: Vec<_> = given.iter().filter(|entry| !policy.allow_out.contains(entry)).collect();
    let mut denied = policy.deny_out;
    if policy.deny_all {
        denied.push("0.0.0.0/0".to_owned());
    }
    json!({ "allowed_cidrs": policy.allow_out, "denied_cidrs": denied, "allowed_domains": domains })
}

/// The id of a session, derived from the sandbox's id and the start of the session.
fn execution_id(sandbox: &str, session: &Session) -> Uuid {
    let text = format!("{sandbox}/{}", session.started_at.as_microsecond());
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}
