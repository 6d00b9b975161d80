//! The address where a sandbox asks who it is (contract: envd, section 6).

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::routing::get;
use serde_json::json;
use tokio::net::TcpListener;

use super::listen;
use crate::EVENTS_ADDRESS;

const PORT: u16 = 80;

/// Answers `GET /me` on the events address for as long as the daemon lives. The address is there only if the host has
/// made it; a sandbox without it works all the same.
pub async fn serve_events(sandbox_id: String) {
    let address = SocketAddr::from((EVENTS_ADDRESS, PORT));
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::info!(%address, %error, "no events address");
            return;
        }
    };
    let me = get(move || std::future::ready(Json(json!({ "sandboxID": sandbox_id }))));
    let router = Router::new().route("/me", me);
    listen::accept_tcp(listener, Arc::new(move |request| listen::call(router.clone(), request))).await;
}
