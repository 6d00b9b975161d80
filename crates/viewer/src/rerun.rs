//! Running what the pages start: stored runs again, and whatever is running.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::Stream;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Refused;
use crate::manage::read;
use crate::running::Runs;
use crate::shared::Shared;

fn runs(shared: &Shared) -> Result<&Runs, Refused> {
    shared.runs.as_ref().ok_or(Refused::NoRuns)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    /// Only the rows that ended with an error, in the run that they are in.
    errors: bool,
    /// Whether models are asked, where their answers are in the cache.
    fresh: bool,
}

/// Runs a stored run again.
pub(crate) async fn run(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    let runs = runs(&shared)?;
    let wanted: Wanted = read(&body)?;
    // What is no id of a stored run could be read as an option.
    if !shared.library.is_repeatable(&id).await? {
        return Err(Refused::Invalid(format!(
            "`{id}` cannot be run again: it is not stored, was made elsewhere, or is a red team"
        )));
    }
    let mut arguments = vec!["eval", if wanted.errors { "retry" } else { "rerun" }, &id, "--no-table"];
    if wanted.fresh {
        arguments.push("--no-cache");
    }
    runs.start(arguments, shared.library.directory())?;
    Ok(Json(json!({"started": true})))
}

/// Interrupts what is running.
pub(crate) async fn stop(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Refused> {
    let stopped = runs(&shared)?.stop();
    Ok(Json(json!({"stopped": stopped})))
}

/// Output of what was started last, and then its exit status.
pub(crate) async fn output(
    State(shared): State<Arc<Shared>>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refused> {
    Ok(Sse::new(runs(&shared)?.events()).keep_alive(KeepAlive::default()))
}
