//! Snapshots and forks (contract: control-plane, section 7).

use std::collections::HashMap;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use sandcove_wire::api::sandbox::{KeptMemory, MemoryPlace};
use sandcove_wire::api::snapshot as wire;

use super::auth::{Caller, Reader};
use super::body::{self, Optional, Required};
use super::error::error_body;
use super::paging::{PageRequest, Position};
use super::params::{Query, Sandbox};
use super::sandboxes::{DEFAULT_TIMEOUT_V1, keep, positive_timeout, sandbox};
use crate::domain::reference::Reference;
use crate::domain::snapshot::Snapshot;
use crate::domain::team::Team;
use crate::state::App;
use crate::{Error, Result};

/// Maximum number of forks of one request.
const MAX_FORKS: i32 = 100;

pub(super) async fn create(
    State(app): State<App>,
    Caller(team): Caller,
    Sandbox(id): Sandbox,
    Required(body): Required<wire::NewSnapshot>,
) -> Result<Response> {
    let name = body.name.as_deref().filter(|name| !name.is_empty()).map(parse_name).transpose()?;
    let snapshot = app.sandboxes().snapshot(&team, &id, name, keep(body.memory)).await?;
    Ok(body::json(StatusCode::CREATED, &info(&snapshot, &team)))
}

pub(super) async fn list(State(app): State<App>, Reader(team): Reader, query: Query) -> Result<Response> {
    let page = PageRequest::from_query(&query)?;
    let mut snapshots = app.store().snapshots(&team).await?;
    if let Some(id) = query.text("sandboxID") {
        let id = id.parse().map_err(|_| Error::InvalidSandboxId)?;
        snapshots.retain(|snapshot| snapshot.sandbox == id);
    }
    if let Some(name) = query.text("name") {
        let name = parse_name(name)?;
        snapshots.retain(|snapshot| is_named(snapshot, &name, &team));
    }
    let page = page.cut(newest_of_each(snapshots), |snapshot| Position {
        time: snapshot.created_at,
        id: snapshot.template_id.to_string(),
    });
    let rows: Vec<_> = page.rows.iter().map(|snapshot| info(snapshot, &team)).collect();
    let mut answer = body::json(StatusCode::OK, &rows);
    if let Some(next) = page.next {
        answer.headers_mut().insert("x-next-token", next);
    }
    Ok(answer)
}

pub(super) async fn fork(
    State(app): State<App>,
    Caller(team): Caller,
    Sandbox(id): Sandbox,
    Optional(body): Optional<wire::Fork>,
) -> Result<Response> {
    let timeout = positive_timeout(body.timeout.unwrap_or(DEFAULT_TIMEOUT_V1), &team)?;
    let count = u32::try_from(body.count.unwrap_or(1))
        .ok()
        .filter(|count| (1..=MAX_FORKS.unsigned_abs()).contains(count))
        .ok_or_else(|| {
            Error::InvalidRequest(format!("property \"count\" must be between 1 and {MAX_FORKS}"))
        })?;
    if count >= team.max_sandboxes {
        return Err(Error::Refused(format!(
            "count must be less than the number of sandboxes your team may run at once ({})",
            team.max_sandboxes
        )));
    }
    let forks = app.sandboxes().fork(&team, &id, timeout, count).await?;
    let results: Vec<_> = forks
        .into_iter()
        .map(|fork| match fork {
            Ok(view) => wire::ForkResult { sandbox: Some(sandbox(&app, &view)), error: None },
            Err(error) => {
                tracing::warn!(error = ?error, "a fork was not started");
                wire::ForkResult { sandbox: None, error: Some(error_body(&error)) }
            }
        })
        .collect();
    Ok(body::json(StatusCode::CREATED, &results))
}

fn parse_name(text: &str) -> Result<Reference> {
    Ok(text.parse()?)
}

fn is_named(snapshot: &Snapshot, name: &Reference, team: &Team) -> bool {
    let own = name.namespace().is_none_or(|namespace| namespace == team.slug);
    let alias = name.alias();
    own && (snapshot.name.as_deref() == Some(alias) || snapshot.template_id.as_str() == alias)
        && (!name.has_tag() || snapshot.tag == name.tag())
}

/// The newest snapshot of each template: callers see the tags of one name as one snapshot, as new as its newest.
fn newest_of_each(snapshots: Vec<Snapshot>) -> Vec<Snapshot> {
    let mut newest: HashMap<_, Snapshot> = HashMap::new();
    for snapshot in snapshots {
        match newest.get(&snapshot.template_id) {
            Some(other) if other.created_at >= snapshot.created_at => {}
            _ => {
                newest.insert(snapshot.template_id.clone(), snapshot);
            }
        }
    }
    newest.into_values().collect()
}

fn info(snapshot: &Snapshot, team: &Team) -> wire::SnapshotInfo {
    let memory = snapshot.memory_bytes.map(|bytes| KeptMemory { place: MemoryPlace::Disk, bytes });
    wire::SnapshotInfo { snapshot_id: snapshot.id(team), names: snapshot.names(team), kept_memory: memory }
}
