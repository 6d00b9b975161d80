//! The pages that set up a red team: what can be chosen, the review, writing the configuration and running it.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::Stream;
use sandcove_eval::config::draft::{self, Draft, KINDS};
use sandcove_eval::redteam::choices;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Refused;
use crate::manage::read;
use crate::running::Setup;
use crate::shared::Shared;

fn setup(shared: &Shared) -> Result<&Setup, Refused> {
    shared.setup.as_ref().ok_or(Refused::NoSetup)
}

/// Plugins, strategies and types of targets to choose from, with their defaults.
pub(crate) async fn offer(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Refused> {
    let setup = setup(&shared)?;
    let kinds = KINDS.iter().map(|kind| json!({"name": kind.name, "about": kind.about, "usual": kind.usual}));
    Ok(Json(json!({
        "directory": setup.directory,
        "kinds": kinds.collect::<Vec<_>>(),
        "plugins": choices::plugins(),
        "strategies": choices::strategies(),
        "defaults": {"name": draft::NAME, "purpose": draft::PURPOSE, "plugins": draft::PLUGINS, "strategies": draft::STRATEGIES},
        "running": setup.runs.is_running(),
    })))
}

/// The configuration of a draft as it would be written, and what of it will be skipped.
pub(crate) async fn review(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<Json<Value>, Refused> {
    setup(&shared)?;
    let draft: Draft = read(&body)?;
    let skipped = draft.review().map_err(|error| Refused::Invalid(error.to_string()))?;
    Ok(Json(json!({"text": draft.text(), "skipped": skipped})))
}

#[derive(Debug, Deserialize)]
struct Written {
    draft: Draft,
    #[serde(default)]
    replace: bool,
    #[serde(default)]
    run: bool,
}

/// Writes the configuration of a draft, and runs it if that is wanted.
pub(crate) async fn write(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<Json<Value>, Refused> {
    let setup = setup(&shared)?;
    let Written { draft, replace, run } = read(&body)?;
    let invalid = |error: draft::DraftError| Refused::Invalid(error.to_string());
    draft.review().map_err(invalid)?;
    if run && setup.runs.is_running() {
        return Err(Refused::Invalid("a red team is running already".to_owned()));
    }
    let directory = setup.directory.clone();
    let written = tokio::task::spawn_blocking(move || draft.write(&directory, replace)).await;
    let path = written.map_err(|error| Refused::Invalid(error.to_string()))?.map_err(invalid)?;
    if run {
        setup.runs.start(&path, &setup.directory).map_err(Refused::Invalid)?;
    }
    Ok(Json(json!({"path": path})))
}

/// Interrupts the red team that is running.
pub(crate) async fn stop(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Refused> {
    let stopped = setup(&shared)?.runs.stop();
    Ok(Json(json!({"stopped": stopped})))
}

/// Output of the red team that was started last, and then its exit status.
pub(crate) async fn output(
    State(shared): State<Arc<Shared>>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refused> {
    Ok(Sse::new(setup(&shared)?.runs.events()).keep_alive(KeepAlive::default()))
}
