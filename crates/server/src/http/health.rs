//! `GET /health` (contract: control-plane, section 1).

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use sandcove_wire::api::admin::NodeStatus;

use crate::state::App;

pub(super) async fn health(State(app): State<App>) -> Response {
    if app.is_draining() || app.node().status().0 == NodeStatus::Draining {
        (StatusCode::SERVICE_UNAVAILABLE, "Service is draining").into_response()
    } else {
        (StatusCode::OK, "Health check successful").into_response()
    }
}
