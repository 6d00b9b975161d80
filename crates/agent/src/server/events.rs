//! The address at which a sandbox can ask for its identity (contract: envd, section 6). Clients ask its port 80, which the kernel changes.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use sandcove_wire::boot::{METADATA_ADDRESS, METADATA_PORT};
use serde_json::json;
use tokio::net::TcpListener;

use super::listen;
use crate::state::SharedState;

/// Answers `GET /me` on the events address for as long as the daemon lives. The host may not have set up the address; a sandbox
/// works without it.
pub async fn serve_events(state: SharedState) {
    let address = SocketAddr::from((METADATA_ADDRESS, METADATA_PORT));
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::info!(%address, %error, "no events address");
            return;
        }
    };
    let router = Router::new().route("/me", get(me)).with_state(state);
    listen::accept_tcp(listener, Arc::new(move |request| listen::call(router.clone(), request))).await;
}

async fn me(State(state): State<SharedState>) -> Json<serde_json::Value> {
    Json(json!({ "sandboxID": state.sandbox_id() }))
}
