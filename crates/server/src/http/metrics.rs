//! Readings of sandboxes (contract: control-plane, section 8).

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use sandcove_wire::api::observe::LatestMetrics;
use sandcove_wire::id::SandboxId;

use super::auth::Reader;
use super::body;
use super::params::{Query, Sandbox, invalid};
use crate::app::App;
use crate::{Error, Result};

/// Sandboxes that may be asked for at once.
const MOST: usize = 100;

pub(super) async fn of_one(
    State(app): State<App>,
    Sandbox(id): Sandbox,
    Reader(team): Reader,
    query: Query,
) -> Result<Response> {
    let (start, end) = (query.integer("start")?, query.integer("end")?);
    if let (Some(start), Some(end)) = (start, end)
        && start > end
    {
        return Err(Error::Refused("start time cannot be after end time".into()));
    }
    let readings = app.sandboxes().readings(&team, &id, start, end).await?;
    Ok(body::json(StatusCode::OK, &readings))
}

pub(super) async fn latest(State(app): State<App>, Reader(team): Reader, query: Query) -> Result<Response> {
    let named = query.list("sandbox_ids");
    if named.is_empty() {
        return Err(invalid("sandbox_ids", "is required"));
    }
    let unique: BTreeSet<&str> = named.iter().copied().collect();
    if named.len() > MOST || unique.len() != named.len() {
        return Err(invalid("sandbox_ids", "must be at most 100 different ids"));
    }
    let mut answer = LatestMetrics::default();
    for text in named {
        let id: SandboxId = text.parse().map_err(|_| Error::InvalidSandboxId)?;
        let latest = app.sandboxes().latest_reading(&team, &id).await;
        answer.sandboxes.extend(latest.map(|reading| (id.to_string(), reading)));
    }
    Ok(body::json(StatusCode::OK, &answer))
}
