//! Calls of operators for the host: nodes, of which there is one, and metrics for Prometheus (contract: control-plane, section 13).

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sandcove_wire::api::admin as wire;

use super::auth::{Operator, Scraper};
use super::body::{self, Required};
use super::params::Path;
use crate::state::App;
use crate::telemetry::{Form, SandboxState, StartResult};
use crate::{Error, Result};

/// The media type of OpenMetrics, without its parameters.
const OPEN_METRICS: &str = "application/openmetrics-text";

/// The metrics, in the form that the client asks for: Prometheus prefers OpenMetrics.
pub(super) async fn metrics(State(app): State<App>, _: Scraper, headers: HeaderMap) -> Response {
    let accepts = |kind: &HeaderValue| kind.to_str().is_ok_and(|kinds| kinds.contains(OPEN_METRICS));
    let (form, kind) = match headers.get_all(header::ACCEPT).iter().any(accepts) {
        true => (Form::Open, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        false => (Form::Plain, "text/plain; version=0.0.4; charset=utf-8"),
    };
    ([(header::CONTENT_TYPE, kind)], metrics_text(&app, form).await).into_response()
}

/// The metrics as they are now.
pub(crate) async fn metrics_text(app: &App, form: Form) -> String {
    let views = app.sandboxes().all_views();
    let paused = views.iter().filter(|view| view.is_paused()).count();
    let telemetry = app.telemetry();
    telemetry.set_sandboxes(SandboxState::Paused, paused);
    telemetry.set_parked_bytes(views.iter().filter_map(|view| view.settings.parked).sum());
    telemetry.set_sandboxes(SandboxState::Running, views.len() - paused);
    telemetry.set_sandboxes(SandboxState::Starting, app.sandboxes().admission().starting());
    telemetry.set_capacity(app.config().capacity);
    if let Some(disk) = app.node().disks(app.sandboxes().host()).await.first() {
        telemetry.set_disk(disk.total_bytes, disk.used_bytes);
    }
    let pool = app.templates().pool_states().await.ok();
    telemetry.text(pool, form)
}

pub(super) async fn nodes(State(app): State<App>, _: Operator) -> Response {
    let mut node = describe(&app).await;
    node.sandbox_starting_count =
        Some(u32::try_from(app.sandboxes().admission().starting()).unwrap_or(u32::MAX));
    body::json(StatusCode::OK, &[node])
}

pub(super) async fn node(State(app): State<App>, _: Operator, Path(id): Path<String>) -> Result<Response> {
    check(&app, &id)?;
    Ok(body::json(StatusCode::OK, &describe(&app).await))
}

pub(super) async fn set_node_status(
    State(app): State<App>,
    _: Operator,
    Path(id): Path<String>,
    Required(body): Required<wire::NodeStatusChange>,
) -> Result<StatusCode> {
    check(&app, &id)?;
    match body.status {
        wire::NodeStatus::Ready | wire::NodeStatus::Draining => {}
        other => return Err(Error::NodeRefused(format!("a node cannot be made {other:?}").to_lowercase())),
    }
    app.node().set_status(body.status);
    app.sandboxes().admission().set_open(body.status == wire::NodeStatus::Ready);
    Ok(StatusCode::NO_CONTENT)
}

fn check(app: &App, id: &str) -> Result<()> {
    if app.node().id() == id { Ok(()) } else { Err(Error::NodeNotFound) }
}

async fn describe(app: &App) -> wire::Node {
    let views = app.sandboxes().all_views();
    let running: Vec<_> = views.iter().filter(|view| !view.is_paused()).collect();
    let limits = || running.iter().map(|view| view.details.limits);
    let metrics = wire::NodeMetrics {
        allocated_cpu: limits().map(|limits| limits.cpus).sum(),
        allocated_memory_bytes: limits().map(|limits| limits.memory_mib << 20).sum(),
        disks: app.node().disks(app.sandboxes().host()).await,
        ..app.node().usage()
    };
    let (status, status_changed_at) = app.node().status();
    wire::Node {
        id: app.node().id().to_owned(),
        service_instance_id: app.node().instance().to_string(),
        cluster_id: uuid::Uuid::nil().to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: String::new(),
        machine_info: app.node().machine().clone(),
        status,
        status_changed_at,
        sandbox_count: u32::try_from(running.len()).unwrap_or(u32::MAX),
        sandbox_starting_count: None,
        create_successes: app.telemetry().starts(StartResult::Started),
        create_fails: app.telemetry().starts(StartResult::Failed),
        capacity: Some(app.config().capacity),
        pool: pool(app).await,
        metrics,
    }
}

/// The pooled sandboxes by template; builds of one template are counted together.
async fn pool(app: &App) -> Vec<wire::PooledTemplate> {
    let mut pool: BTreeMap<String, wire::PooledTemplate> = BTreeMap::new();
    for state in app.templates().pool_states().await.unwrap_or_default() {
        let of_template = pool.entry(state.template).or_default();
        of_template.ready += state.ready as u64;
        of_template.wanted += state.wanted as u64;
        of_template.memory_bytes += state.memory_bytes;
        of_template.hits += state.hits;
        of_template.misses += state.misses;
    }
    let mut named = Vec::with_capacity(pool.len());
    for (template_id, of_template) in pool {
        let name = match template_id.parse() {
            Ok(id) => app.store().template_info(&id).await.ok().flatten().map(|found| found.info.name),
            Err(_) => None,
        };
        named.push(wire::PooledTemplate { name: name.unwrap_or_default(), template_id, ..of_template });
    }
    named
}
