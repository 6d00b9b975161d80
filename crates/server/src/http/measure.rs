//! The layer around every route: counts requests, and shows teams the rest of their rate limit (contract: control-plane,
//! section 1).

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use tracing::Span;
use uuid::Uuid;

use crate::state::{Allowance, App, Turn};
use crate::{Error, Result, otlp};

/// The slot in a request for what its team is given: filled in when the team is known, and dropped with the answer.
#[derive(Debug, Clone, Default)]
struct Slot(Arc<Given>);

#[derive(Debug, Default)]
struct Given {
    allowance: OnceLock<Allowance>,
    turn: OnceLock<Turn>,
}

/// Counts a request of `team`; fails when the request is one too many.
pub(super) fn limit(app: &App, team: Uuid, parts: &Parts) -> Result<()> {
    let call = (parts.method.clone(), matched(&parts.extensions).unwrap_or_default().to_owned());
    let Some(allowance) = app.limiter().count(team, call) else { return Ok(()) };
    if let Some(Slot(given)) = parts.extensions.get() {
        // Set twice when a handler asks for the team twice; both are the same request.
        let _ = given.allowance.set(allowance);
    }
    if allowance.is_exceeded { Err(Error::TooManyRequests(allowance.reset)) } else { Ok(()) }
}

/// Waits for the team's turn, if the request only reads.
pub(super) async fn wait_for_turn(app: &App, team: Uuid, parts: &Parts) {
    if let Some(Slot(given)) = parts.extensions.get()
        && parts.method == Method::GET
        && given.turn.get().is_none()
        && let Some(turn) = app.reads().take(team).await
    {
        let _ = given.turn.set(turn);
    }
}

/// Writes an allowance to the headers of an answer.
pub(crate) fn show(allowance: &Allowance, headers: &mut HeaderMap) {
    headers.insert("ratelimit-limit", HeaderValue::from(allowance.limit));
    headers.insert("ratelimit-remaining", HeaderValue::from(allowance.remaining));
    headers.insert("ratelimit-reset", HeaderValue::from(allowance.reset));
}

/// The layer around every route.
pub(super) async fn measure(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let route = matched(request.extensions()).unwrap_or("none").to_owned();
    let span = Span::current();
    if !span.is_disabled() && route != "none" {
        span.record("http.route", route.as_str());
        otlp::rename(&span, format!("{method} {route}"));
    }
    let slot = Slot::default();
    request.extensions_mut().insert(slot.clone());
    let mut answer = next.run(request).await;
    if let Some(allowance) = slot.0.allowance.get() {
        show(allowance, answer.headers_mut());
    }
    let known = if route == "none" { "other" } else { method.as_str() };
    app.telemetry().answered(known, &route, answer.status().as_u16(), began.elapsed());
    answer
}

fn matched(extensions: &http::Extensions) -> Option<&str> {
    extensions.get::<MatchedPath>().map(MatchedPath::as_str)
}
