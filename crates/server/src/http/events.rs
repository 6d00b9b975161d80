//! Events of sandboxes (contract: dashboard, section 4).

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::auth::Reader;
use super::body;
use super::params::{Query, Sandbox, invalid};
use crate::Result;
use crate::domain::event::check_types;
use crate::state::App;
use crate::store::EventQuery;

/// Maximum and default number of events in one answer.
const MAX_EVENTS: i64 = 100;
const DEFAULT_EVENTS: i64 = 10;

pub(super) async fn of_team(State(app): State<App>, Reader(team): Reader, query: Query) -> Result<Response> {
    let events = app.store().events(team.id, &parse(&query)?).await?;
    Ok(body::json(StatusCode::OK, &events))
}

/// Lists the events of a sandbox, also of a removed one; a sandbox of another team has none.
pub(super) async fn of_sandbox(
    State(app): State<App>,
    Reader(team): Reader,
    Sandbox(id): Sandbox,
    query: Query,
) -> Result<Response> {
    let query = EventQuery { sandbox: Some(id.to_string()), ..parse(&query)? };
    let events = app.store().events(team.id, &query).await?;
    Ok(body::json(StatusCode::OK, &events))
}

fn parse(query: &Query) -> Result<EventQuery> {
    let types: Vec<String> = query.list("types").into_iter().map(str::to_owned).collect();
    check_types(&types)?;
    Ok(EventQuery {
        sandbox: None,
        types,
        ascending: flag(query, "orderAsc")?,
        offset: query.integer_in("offset", 0..=i64::MAX, 0)?,
        limit: query.integer_in("limit", 1..=MAX_EVENTS, DEFAULT_EVENTS)?,
    })
}

/// The value of a parameter that is true or false.
pub(super) fn flag(query: &Query, name: &str) -> Result<bool> {
    match query.text(name) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(invalid(name, "must be true or false")),
    }
}
