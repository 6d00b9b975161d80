//! The table of routes, and the layers around them.

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{self, MethodRouter};
use http::{HeaderName, HeaderValue, Method, header};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{Any, CorsLayer};

use super::{
    admin, archives, audit, builds, egress, error, events, health, identity, keys, lists, logs, measure,
    metrics, operators, sandboxes, secrets, snapshots, tags, team_metrics, teams, templates, uploads,
    volume_content, volumes, webhooks,
};
use crate::Error;
use crate::state::App;

/// Maximum duration of a request to the API.
const DEADLINE: Duration = Duration::from_secs(70);
/// Maximum duration of a request for a file of a volume, or of an upload, which may be of any size.
const FILE_DEADLINE: Duration = Duration::from_secs(3600);

/// The layer that ends a request at its deadline. Changes of sandboxes that a handler has begun go on: none of them runs in its task.
async fn end_in_time(request: Request, next: Next) -> Response {
    let deadline = deadline(request.uri().path());
    let answer = tokio::time::timeout(deadline, next.run(request)).await;
    answer.unwrap_or_else(|_| Error::Deadline.into_response())
}

/// The maximum duration of a request to `path`.
fn deadline(path: &str) -> Duration {
    let is_file = ["/volumecontent/", "/upload/"].iter().any(|prefix| path.starts_with(prefix))
        || (path.starts_with("/templates/") && path.ends_with("/export"))
        || path == "/templates/gc";
    if is_file { FILE_DEADLINE } else { DEADLINE }
}

/// A call of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path; parameters are in braces.
    pub path: &'static str,
}

/// Every call that the API answers, from the table that the router is built from.
pub fn routes() -> Vec<Route> {
    table().routes
}

pub(crate) fn router(app: App) -> Router {
    table()
        .router
        .fallback(no_route)
        .method_not_allowed_fallback(no_route)
        .layer(axum::middleware::from_fn_with_state(app.clone(), audit::record))
        .layer(axum::middleware::from_fn_with_state(app.clone(), measure::measure))
        .layer(axum::middleware::from_fn(end_in_time))
        .layer(CatchPanicLayer::custom(error::panicked))
        .layer(axum::middleware::from_fn(secrets::guard_answers))
        .layer(cors())
        .with_state(app)
}

/// Builds the table of calls. Paths are matched while still encoded, then each parameter is decoded.
fn table() -> Table {
    Table::default()
        .get("/health", health::health)
        .get("/openapi.json", openapi)
        .get(identity::KEYS, identity::keys)
        .get("/.well-known/openid-configuration", identity::configuration)
        .get("/metrics", operators::metrics)
        .get("/sandboxes", lists::running)
        .post("/sandboxes", sandboxes::create_v1)
        .get("/v2/sandboxes", lists::paged)
        .post("/v2/sandboxes", sandboxes::create_v2)
        .get("/sandboxes/metrics", metrics::latest)
        .get("/sandboxes/{id}", sandboxes::detail)
        .delete("/sandboxes/{id}", sandboxes::kill)
        .post("/sandboxes/{id}/pause", sandboxes::pause)
        .post("/sandboxes/{id}/park", sandboxes::park)
        .post("/sandboxes/{id}/resume", sandboxes::resume)
        .post("/sandboxes/{id}/connect", sandboxes::connect_v1)
        .post("/v2/sandboxes/{id}/connect", sandboxes::connect_v2)
        .post("/sandboxes/{id}/timeout", sandboxes::set_timeout)
        .post("/sandboxes/{id}/refreshes", sandboxes::refresh)
        .put("/sandboxes/{id}/network", sandboxes::set_network)
        .post("/sandboxes/{id}/snapshots", snapshots::create)
        .get("/snapshots", snapshots::list)
        .post("/sandboxes/{id}/fork", snapshots::fork)
        .get("/sandboxes/{id}/egress", egress::log)
        .get("/sandboxes/{id}/metrics", metrics::of_one)
        .get("/sandboxes/{id}/logs", logs::v1)
        .get("/v2/sandboxes/{id}/logs", logs::v2)
        .get("/templates", templates::list)
        .get("/v2/templates", templates::list_paged)
        .post("/v2/templates", builds::request_v2)
        .post("/v3/templates", builds::request)
        .get("/default-templates", templates::defaults)
        .get("/templates/{id}", templates::detail)
        .patch("/templates/{id}", templates::update_v1)
        .patch("/v2/templates/{id}", templates::update)
        .delete("/templates/{id}", templates::delete)
        .get("/templates/{id}/{name}", templates::detail)
        .delete("/templates/{id}/{name}", templates::delete)
        .post("/v2/templates/{id}/builds/{build}", builds::start)
        .get("/templates/{id}/builds/{build}/status", builds::status)
        .get("/templates/{id}/builds/{build}/logs", builds::logs)
        .get("/templates/{id}/files/{hash}", uploads::link)
        .put("/upload/{team}/{hash}", uploads::receive)
        .post("/templates/tags", tags::assign)
        .delete("/templates/tags", tags::remove)
        .get("/templates/{id}/tags", tags::list)
        .get("/templates/{id}/{name}/tags", tags::list)
        .get("/templates/{id}/tags/count", tags::count)
        .get("/templates/{id}/tags/exists", tags::exists)
        .get("/templates/{id}/tags/groups", tags::groups)
        .get("/templates/{id}/tags/{tag}/assignments", tags::assignments)
        .get("/templates/{id}/export", archives::export)
        .post("/templates/gc", archives::collect)
        .get("/templates/aliases/{alias}", templates::alias)
        .get("/templates/aliases/{alias}/{name}", templates::alias)
        .get("/teams", teams::list)
        .get("/teams/{id}/metrics", team_metrics::series)
        .get("/teams/{id}/metrics/max", team_metrics::max)
        .get("/api-keys", keys::list)
        .post("/api-keys", keys::create)
        .patch("/api-keys/{id}", keys::rename)
        .delete("/api-keys/{id}", keys::delete)
        .post("/access-tokens", keys::create_token)
        .delete("/access-tokens/{id}", keys::delete_token)
        .get("/volumes", volumes::list)
        .post("/volumes", volumes::create)
        .get("/volumes/{id}", volumes::detail)
        .delete("/volumes/{id}", volumes::delete)
        .get("/volumecontent/{id}/path", volume_content::stat)
        .patch("/volumecontent/{id}/path", volume_content::update)
        .delete("/volumecontent/{id}/path", volume_content::remove)
        .get("/volumecontent/{id}/dir", volume_content::list)
        .post("/volumecontent/{id}/dir", volume_content::make_directory)
        .get("/volumecontent/{id}/file", volume_content::read)
        .put("/volumecontent/{id}/file", volume_content::write)
        .get("/secrets", secrets::list)
        .post("/secrets", secrets::create)
        .get("/secrets/{id}", secrets::detail)
        .post("/secrets/{id}", secrets::update)
        .delete("/secrets/{id}", secrets::delete)
        .get("/events/sandboxes", events::of_team)
        .get("/events/sandboxes/{id}", events::of_sandbox)
        .get("/events/webhooks", webhooks::list)
        .post("/events/webhooks", webhooks::create)
        .get("/events/webhooks/{id}", webhooks::detail)
        .patch("/events/webhooks/{id}", webhooks::update)
        .delete("/events/webhooks/{id}", webhooks::delete)
        .get("/events/webhooks/{id}/deliveries", webhooks::deliveries)
        .post("/events/webhooks/{id}/deliveries/{delivery}/redeliver", webhooks::redeliver)
        .get("/events/webhooks/{id}/stats", webhooks::stats)
        .get("/nodes", operators::nodes)
        .get("/nodes/{id}", operators::node)
        .post("/nodes/{id}", operators::set_node_status)
        .get("/admin/teams", admin::list)
        .post("/admin/teams", admin::create)
        .get("/admin/teams/{id}", admin::detail)
        .patch("/admin/teams/{id}", admin::update)
        .post("/admin/teams/{id}/sandboxes/kill", admin::kill)
        .post("/admin/teams/{id}/builds/cancel", admin::cancel_builds)
        .post("/admin/teams/{id}/api-keys", admin::create_key)
        .delete("/admin/teams/{id}/api-keys/{key}", admin::delete_key)
        .get("/admin/sandboxes/running-counts", admin::running_counts)
        .get("/admin/audit", audit::list)
}

#[derive(Default)]
struct Table {
    router: Router<App>,
    routes: Vec<Route>,
}

impl Table {
    fn get<H: Handler<T, App>, T: 'static>(self, path: &'static str, handler: H) -> Self {
        self.on(Method::GET, path, routing::get(handler))
    }

    fn post<H: Handler<T, App>, T: 'static>(self, path: &'static str, handler: H) -> Self {
        self.on(Method::POST, path, routing::post(handler))
    }

    fn put<H: Handler<T, App>, T: 'static>(self, path: &'static str, handler: H) -> Self {
        self.on(Method::PUT, path, routing::put(handler))
    }

    fn patch<H: Handler<T, App>, T: 'static>(self, path: &'static str, handler: H) -> Self {
        self.on(Method::PATCH, path, routing::patch(handler))
    }

    fn delete<H: Handler<T, App>, T: 'static>(self, path: &'static str, handler: H) -> Self {
        self.on(Method::DELETE, path, routing::delete(handler))
    }

    fn on(mut self, method: Method, path: &'static str, handler: MethodRouter<App>) -> Self {
        self.router = self.router.route(path, handler);
        self.routes.push(Route { method, path });
        self
    }
}

/// Serves the OpenAPI description. It is written by hand; a test compares it with the table above.
async fn openapi() -> impl IntoResponse {
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    ([(header::CONTENT_TYPE, json)], include_str!("../../openapi.json"))
}

async fn no_route(request: Request) -> Error {
    let path = request.uri().path();
    let is_below =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if is_below("/instances") || is_below("/envs") {
        Error::DeprecatedRoute
    } else if request.method() == Method::POST && is_below("/templates") {
        // Releases before 2.2 of the packages, and 1.x of the CLI.
        Error::Refused(
            "this server does not build templates from pushed images: update your E2B SDK or CLI, or use \
             `sandcove template build`"
                .into(),
        )
    } else {
        Error::NoRoute(format!("{} {path}", request.method()))
    }
}

/// Lets browsers call from any origin. Requests are protected by keys, which are not cookies.
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
        "x-request-id",
    ];
    let exposed = [
        "x-next-token",
        "x-total-running",
        "ratelimit-limit",
        "ratelimit-remaining",
        "ratelimit-reset",
        "retry-after",
        "x-request-id",
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

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use tower::ServiceExt;

    use super::*;

    /// A router whose one call takes for ever, with the layers around those of the API.
    fn stuck(path: &str) -> Router {
        Router::new()
            .route(path, routing::get(std::future::pending::<StatusCode>))
            .layer(axum::middleware::from_fn(end_in_time))
            .layer(axum::middleware::from_fn(secrets::guard_answers))
            .layer(cors())
    }

    async fn ask(path: &str) -> (Response, serde_json::Value) {
        let request =
            Request::get(path).header("origin", "http://page").body(axum::body::Body::empty()).unwrap();
        let (parts, body) = stuck(path).oneshot(request).await.unwrap().into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        (Response::from_parts(parts, axum::body::Body::empty()), serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_at_the_deadline_is_one_of_the_call() {
        for (path, message) in
            [("/secrets", "Secrets backend timed out"), ("/sandboxes", "request took too long")]
        {
            let (answer, body) = ask(path).await;
            assert_eq!(
                (answer.status(), body["message"].as_str()),
                (StatusCode::GATEWAY_TIMEOUT, Some(message))
            );
            assert_eq!(answer.headers()["access-control-allow-origin"], "*");
            assert_eq!(answer.headers()["should-retry"], "false");
            let caching = answer.headers().get("cache-control").map(HeaderValue::as_bytes);
            assert_eq!(caching, (path == "/secrets").then_some(&b"no-store"[..]));
        }
    }
}
