//! Samples of the resource usage of sandboxes (contract: control-plane, section 8).

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use sandcove_wire::api::observe::LatestMetrics;
use sandcove_wire::id::SandboxId;

use super::auth::Reader;
use super::body;
use super::params::{Query, Sandbox, invalid};
use crate::state::App;
use crate::{Error, Result};

/// Maximum number of sandboxes in one request.
const MAX_SANDBOXES: usize = 100;

pub(super) async fn of_one(
    State(app): State<App>,
    Reader(team): Reader,
    Sandbox(id): Sandbox,
    query: Query,
) -> Result<Response> {
    let (start, end) = (query.integer("start")?, query.integer("end")?);
    if let (Some(start), Some(end)) = (start, end)
        && start > end
    {
        return Err(Error::InvalidTimeRange);
    }
    let samples = app.sandboxes().samples(&team, &id, start, end).await?;
    Ok(body::json(StatusCode::OK, &samples))
}

pub(super) async fn latest(State(app): State<App>, Reader(team): Reader, query: Query) -> Result<Response> {
    let named = query.list("sandbox_ids");
    if named.is_empty() {
        return Err(invalid("sandbox_ids", "is required"));
    }
    let unique: BTreeSet<&str> = named.iter().copied().collect();
    if named.len() > MAX_SANDBOXES || unique.len() != named.len() {
        return Err(invalid("sandbox_ids", "must be at most 100 different ids"));
    }
    let mut answer = LatestMetrics::default();
    for text in named {
        let id: SandboxId = text.parse().map_err(|_| Error::InvalidSandboxId)?;
        let latest = app.sandboxes().latest_sample(&team, &id).await;
        answer.sandboxes.extend(latest.map(|sample| (id.to_string(), sample)));
    }
    Ok(body::json(StatusCode::OK, &answer))
}
