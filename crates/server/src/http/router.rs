//! Paths and the layers around them.

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::{get, post, put};
use http::{HeaderName, Method};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{Any, CorsLayer};

use super::{error, health, lists, logs, metrics, sandboxes, snapshots, teams, templates};
use crate::Error;
use crate::app::App;

/// The longest a request to the API may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(70);

/// Everything the API answers. Paths are matched still encoded, then each parameter is decoded.
pub(crate) fn router(app: App) -> Router {
    Router::new()
        .route("/health", get(health::health))
        .route("/sandboxes", get(lists::running).post(sandboxes::create_v1))
        .route("/v2/sandboxes", get(lists::paged).post(sandboxes::create_v2))
        .route("/sandboxes/metrics", get(metrics::latest))
        .route("/sandboxes/{id}", get(sandboxes::detail).delete(sandboxes::kill))
        .route("/sandboxes/{id}/pause", post(sandboxes::pause))
        .route("/sandboxes/{id}/resume", post(sandboxes::resume))
        .route("/sandboxes/{id}/connect", post(sandboxes::connect_v1))
        .route("/v2/sandboxes/{id}/connect", post(sandboxes::connect_v2))
        .route("/sandboxes/{id}/timeout", post(sandboxes::set_timeout))
        .route("/sandboxes/{id}/refreshes", post(sandboxes::refresh))
        .route("/sandboxes/{id}/network", put(sandboxes::set_network))
        .route("/sandboxes/{id}/snapshots", post(snapshots::create))
        .route("/snapshots", get(snapshots::list))
        .route("/sandboxes/{id}/fork", post(snapshots::fork))
        .route("/sandboxes/{id}/metrics", get(metrics::of_one))
        .route("/sandboxes/{id}/logs", get(logs::v1))
        .route("/v2/sandboxes/{id}/logs", get(logs::v2))
        .route("/templates", get(templates::list))
        .route("/v2/templates", get(templates::list_paged))
        .route("/default-templates", get(templates::defaults))
        .route("/templates/{id}", get(templates::detail).delete(snapshots::delete))
        .route("/templates/{id}/{name}", get(templates::detail).delete(snapshots::delete))
        .route("/templates/{id}/tags", get(templates::tags))
        .route("/templates/{id}/{name}/tags", get(templates::tags))
        .route("/templates/aliases/{alias}", get(templates::alias))
        .route("/templates/aliases/{alias}/{name}", get(templates::alias))
        .route("/teams", get(teams::list))
        .fallback(no_route)
        .method_not_allowed_fallback(no_route)
        .layer(CatchPanicLayer::custom(error::panicked))
        .layer(cors())
        .with_state(app)
}

async fn no_route(request: Request) -> Error {
    let path = request.uri().path();
    let is_below =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if is_below("/instances") || is_below("/envs") {
        Error::DeprecatedRoute
    } else {
        Error::NoRoute(format!("{} {path}", request.method()))
    }
}

/// Browsers may call from any origin: the keys are what protects, and they are not cookies.
fn cors() -> CorsLayer {
    let allowed = [
        "origin",
        "content-length",
        "content-type",
        "user-agent",
        "authorization",
        "x-api-key",
        "x-team-id",
        "browser",
        "lang",
        "lang_version",
        "machine",
        "os",
        "package_version",
        "processor",
        "publisher",
        "release",
        "sdk_runtime",
        "system",
        "idempotency-key",
    ];
    let exposed = [
        "x-next-token",
        "x-total-running",
        "ratelimit-limit",
        "ratelimit-remaining",
        "ratelimit-reset",
        "retry-after",
    ];
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
            Method::OPTIONS,
        ])
        .allow_headers(allowed.map(HeaderName::from_static))
        .expose_headers(exposed.map(HeaderName::from_static))
}
