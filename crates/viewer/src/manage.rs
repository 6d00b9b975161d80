//! Routes that change what is stored.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use sandcove_eval::model::{GradingResult, Object};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::Refused;
use crate::shared::Shared;

/// A body in JSON; errors name what is wrong.
pub(crate) fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refused> {
    serde_json::from_slice(body)
        .map_err(|error| Refused::Invalid(format!("the body is not understood: {error}")))
}

#[derive(Deserialize)]
struct Amendment {
    config: Option<Object>,
    description: Option<String>,
}

/// `PATCH /api/eval/{id}`
pub(crate) async fn amend(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    let given: Amendment = read(&body)?;
    let mut config = given.config.unwrap_or_default();
    if let Some(description) = given.description {
        config.insert("description".to_owned(), json!(description));
    }
    shared.library.amend(&id, config).await?;
    Ok(Json(json!({"message": "the run was changed"})))
}

#[derive(Deserialize)]
struct Author {
    author: String,
}

/// `PATCH /api/eval/{id}/author`
pub(crate) async fn set_author(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    shared.library.set_author(&id, &read::<Author>(&body)?.author).await?;
    Ok(Json(json!({"message": "the author was changed"})))
}

#[derive(Default, Deserialize)]
struct Copy {
    description: Option<String>,
}

/// `POST /api/eval/{id}/copy`
pub(crate) async fn copy(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let given: Copy = if body.is_empty() { Copy::default() } else { read(&body)? };
    let (copy, tests) = shared.library.copy(&id, given.description).await?;
    Ok((StatusCode::CREATED, Json(json!({"id": copy, "distinctTestCount": tests}))).into_response())
}

/// `DELETE /api/eval/{id}`
pub(crate) async fn forget(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refused> {
    shared.library.forget(&[id]).await?;
    Ok(Json(json!({"message": "the run was deleted"})))
}

#[derive(Deserialize)]
struct Many {
    ids: Vec<String>,
}

/// `DELETE /api/eval`
pub(crate) async fn forget_many(
    State(shared): State<Arc<Shared>>,
    body: Bytes,
) -> Result<StatusCode, Refused> {
    shared.library.forget(&read::<Many>(&body)?.ids).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /api/eval/{id}/results/{row}/rating`
pub(crate) async fn rate(
    State(shared): State<Arc<Shared>>,
    Path((id, row)): Path<(String, String)>,
    body: Bytes,
) -> Result<Response, Refused> {
    let verdict: GradingResult = read(&body)?;
    Ok(Json(shared.library.rate(&id, &row, verdict).await?).into_response())
}
