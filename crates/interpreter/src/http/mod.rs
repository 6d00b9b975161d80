//! The HTTP interface. Handlers extract, call one method and convert back.

mod error;
mod events;
#[cfg(any(test, fuzzing, debug_assertions))]
pub(crate) mod fuzzing;
mod validation;

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use sandcove_wire::interpreter::Context;
use sandcove_wire::secret::Secret;
use tower_http::cors::CorsLayer;

use crate::contexts::Contexts;
use error::HttpError;

/// The router with all routes (contract: interpreter, section 1).
pub fn router(contexts: Arc<Contexts>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/execute", post(execute))
        .route("/contexts", get(list_contexts).post(create_context))
        .route("/contexts/{id}", axum::routing::delete(remove_context))
        .route("/contexts/{id}/restart", post(restart_context))
        .fallback(async || HttpError::NotFound)
        .method_not_allowed_fallback(async || HttpError::MethodNotAllowed)
        // No limit on code: it comes from the owner of the memory it fills.
        .layer(DefaultBodyLimit::disable())
        .layer(CorsLayer::permissive())
        .with_state(contexts)
}

async fn health() -> Json<&'static str> {
    Json("OK")
}

async fn execute(
    State(contexts): State<Arc<Contexts>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, HttpError> {
    let request = validation::execution_request(&body)?;
    // The proxy of the server has checked the token, where one is required. Here it is passed on to the agent, for the variables of the sandbox.
    let token = headers.get("x-access-token").and_then(|value| value.to_str().ok()).map(Secret::new);
    let events = contexts.execute(request, token).await?;
    Ok(Response::new(Body::from_stream(events::lines(events))))
}

async fn create_context(
    State(contexts): State<Arc<Contexts>>,
    body: Bytes,
) -> Result<Json<Context>, HttpError> {
    let request = validation::create_context(&body)?;
    Ok(Json(contexts.create(request).await?))
}

async fn list_contexts(State(contexts): State<Arc<Contexts>>) -> Json<Vec<Context>> {
    Json(contexts.list())
}

async fn restart_context(
    State(contexts): State<Arc<Contexts>>,
    Path(id): Path<String>,
) -> Result<Json<()>, HttpError> {
    contexts.restart(&id).await?;
    Ok(Json(()))
}

async fn remove_context(
    State(contexts): State<Arc<Contexts>>,
    Path(id): Path<String>,
) -> Result<Json<()>, HttpError> {
    contexts.remove(&id).await?;
    Ok(Json(()))
}
