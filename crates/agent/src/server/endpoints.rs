//! The small public endpoints (contract: envd, section 5).

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use http::StatusCode;
use http::header::CACHE_CONTROL;

use super::metrics::{Meter, Metrics};
use super::pipeline::json_error;
use crate::state::SharedState;

/// The router of the endpoints that only need the state.
pub(super) fn router(state: SharedState) -> Router {
    let envs =
        get(|State(state): State<SharedState>| async move { Json::<BTreeMap<_, _>>(state.variables()) });
    let metrics = Router::new().route("/metrics", get(metrics)).with_state(Arc::new(Meter::default()));
    let health = get(async || (StatusCode::NO_CONTENT, [(CACHE_CONTROL, "no-store")]));
    Router::new().route("/health", health).route("/envs", envs.with_state(state)).merge(metrics)
}

async fn metrics(State(meter): State<Arc<Meter>>) -> Result<Json<Metrics>, axum::response::Response> {
    meter.read().map(Json).map_err(|error| json_error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()))
}
