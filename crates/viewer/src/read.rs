//! Routes that only read.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use sandcove_eval::view::Export;
use serde_json::{Value, json};

use crate::error::Refused;
use crate::shared::Shared;
use crate::table;

type Parameters = Query<HashMap<String, String>>;
type Answer = Result<Json<Value>, Refused>;

/// `GET /health`
pub(crate) async fn health() -> Json<Value> {
    Json(json!({"status": "OK", "version": env!("CARGO_PKG_VERSION")}))
}

/// `GET /api/version`
pub(crate) async fn version() -> Json<Value> {
    let version = env!("CARGO_PKG_VERSION");
    Json(json!({"currentVersion": version, "latestVersion": version, "updateAvailable": false}))
}

/// `GET /api/results`
pub(crate) async fn runs(State(shared): State<Arc<Shared>>, Query(given): Parameters) -> Answer {
    let providers = given.get("includeProviders").is_some_and(|value| value == "true" || value == "1");
    let mut runs = shared.library.runs(given.get("datasetId").map(String::as_str), providers).await?;
    match given.get("type").map(String::as_str) {
        Some("redteam") => runs.retain(|run| run.is_redteam),
        Some("eval") => runs.retain(|run| !run.is_redteam),
        _ => {}
    }
    Ok(Json(json!({"data": runs})))
}

/// `GET /api/results/{id}`
pub(crate) async fn document(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Result<Response, Refused> {
    table::file(shared, id, Export::Json, Some(("{\"data\":", "}"))).await
}

/// `GET /api/eval/{id}/results/{row}`
pub(crate) async fn row(
    State(shared): State<Arc<Shared>>,
    Path((id, row)): Path<(String, String)>,
) -> Result<Response, Refused> {
    let row = shared.library.row(&id, &row).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], row).into_response())
}

/// `GET /api/eval/{id}/scores`
pub(crate) async fn scores(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Answer {
    Ok(Json(json!({"scores": shared.library.scores(&id).await?})))
}

/// `GET /api/eval/{id}/metadata-keys`
pub(crate) async fn metadata_keys(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Answer {
    Ok(Json(json!({"keys": shared.library.metadata_keys(&id).await?})))
}

/// `GET /api/eval/{id}/metadata-values`
pub(crate) async fn metadata_values(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Query(given): Parameters,
) -> Answer {
    let key = given.get("key").ok_or_else(|| Refused::Invalid("`key` is missing".to_owned()))?;
    Ok(Json(json!({"values": shared.library.metadata_values(&id, key).await?})))
}

/// `GET /api/redteam/report/{id}`
pub(crate) async fn red_team(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Answer {
    Ok(Json(json!({"data": shared.library.red_team(&id).await?})))
}

/// `GET /api/prompts`
pub(crate) async fn prompts(State(shared): State<Arc<Shared>>) -> Answer {
    Ok(Json(json!({"data": shared.library.prompts(None).await?})))
}

/// `GET /api/prompts/{dataset}`
pub(crate) async fn prompts_of(State(shared): State<Arc<Shared>>, Path(dataset): Path<String>) -> Answer {
    Ok(Json(json!({"data": shared.library.prompts(Some(&dataset)).await?})))
}

/// `GET /api/datasets`
pub(crate) async fn datasets(State(shared): State<Arc<Shared>>) -> Answer {
    Ok(Json(json!({"data": shared.library.datasets().await?})))
}

/// `GET /api/history`
pub(crate) async fn history(State(shared): State<Arc<Shared>>, Query(given): Parameters) -> Answer {
    let get = |name: &str| given.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let tag = get("tagName").zip(get("tagValue"));
    Ok(Json(json!({"data": shared.library.history(tag, get("description")).await?})))
}
