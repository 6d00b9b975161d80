//! The pages that set up a red team: what can be chosen, the review, writing the configuration and running it.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use sandcove_eval::config::draft::{self, Draft, KINDS};
use sandcove_eval::redteam::choices;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Refused;
use crate::manage::read;
use crate::running::{Runs, StartError};
use crate::shared::Shared;

/// The runs, and the directory that configurations are written to.
fn setup(shared: &Shared) -> Result<(&Runs, &Path), Refused> {
    shared.runs.as_ref().zip(shared.setup.as_deref()).ok_or(Refused::NoSetup)
}

/// Plugins, strategies and types of targets to choose from, with their defaults.
pub(crate) async fn offer(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Refused> {
    let (runs, directory) = setup(&shared)?;
    let kinds = KINDS.iter().map(|kind| json!({"name": kind.name, "about": kind.about, "usual": kind.usual}));
    Ok(Json(json!({
        "directory": directory,
        "kinds": kinds.collect::<Vec<_>>(),
        "plugins": choices::plugins(),
        "strategies": choices::strategies(),
        "defaults": {"name": draft::NAME, "purpose": draft::PURPOSE, "plugins": draft::PLUGINS, "strategies": draft::STRATEGIES},
        "running": runs.is_running(),
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
    let (runs, directory) = setup(&shared)?;
    let Written { draft, replace, run } = read(&body)?;
    let invalid = |error: draft::DraftError| Refused::Invalid(error.to_string());
    draft.review().map_err(invalid)?;
    if run && runs.is_running() {
        return Err(StartError::Busy.into());
    }
    let place = directory.to_owned();
    let written = tokio::task::spawn_blocking(move || draft.write(&place, replace)).await;
    let path = written.map_err(|error| Refused::Invalid(error.to_string()))?.map_err(invalid)?;
    if run {
        let arguments = ["redteam", "run", "--force", "-c"].map(OsStr::new).into_iter();
        runs.start(arguments.chain([path.as_os_str()]), directory)?;
    }
    Ok(Json(json!({"path": path})))
}
