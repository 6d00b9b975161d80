//! Traces, logs and metrics, as a collector gets them (docs/internals/opentelemetry.md). In a process of their own: which spans are looked at is decided for all
//! threads of one together, so other tests would change what these see.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../server/support.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Kind;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use sandcove_server::otlp::{Endpoints, InvalidEndpoint, Otlp};
use sandcove_wire::secret::Secret;
use serde_json::{Value, json};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;

use crate::support::{KEY, Server};

/// Taken by whoever sets where spans go.
static SUBSCRIBED: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
const SECRETS: [&str; 3] = [KEY, "a variable's value", "a value of the metadata"];

/// Keeps what it is sent.
#[derive(Clone, Default)]
struct Collector {
    bodies: Arc<Mutex<Vec<Bytes>>>,
}

impl Collector {
    /// One that listens; its endpoint.
    async fn listen(&self) -> String {
        let bodies = self.bodies.clone();
        let keep = post(move |body: Bytes| async move { bodies.lock().unwrap().push(body) });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // One signal for each collector, so that its address says nothing.
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(keep)).await });
        format!("http://{address}/v1/any")
    }

    /// The spans, and the resource that they name.
    fn spans(&self) -> Vec<(String, Span)> {
        let mut spans = Vec::new();
        for body in self.bodies.lock().unwrap().iter() {
            for group in ExportTraceServiceRequest::decode(body.clone()).unwrap().resource_spans {
                let service = text(&group.resource.as_ref().unwrap().attributes, "service.name");
                let found = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
                spans.extend(found.map(|span| (service.clone(), span)));
            }
        }
        spans
    }
}

fn text(attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.clone()).and_then(|value| value.value) {
        Some(Kind::StringValue(text)) => text,
        Some(Kind::IntValue(number)) => number.to_string(),
        other => panic!("{key} is {other:?} in {attributes:?}"),
    }
}

/// Spans of this thread, which runs the whole server of a test, go to `endpoint`.
fn trace_to(endpoint: &str) -> (Otlp, DefaultGuard) {
    let endpoints = Endpoints { traces: Some(Secret::new(endpoint)), logs: None };
    let traces = Otlp::start(&endpoints).unwrap();
    let subscriber = tracing_subscriber::registry().with(traces.spans());
    let guard = tracing::subscriber::set_default(subscriber);
    (traces, guard)
}

#[tokio::test]
async fn requests_and_changes_of_sandboxes_are_spans_of_one_trace_without_secrets() {
    let _alone = SUBSCRIBED.lock().await;
    let collector = Collector::default();
    let (traces, _guard) = trace_to(&collector.listen().await);
    let server = Server::start().await;
    let parent = format!("00-{TRACE}-{CALLER}-01");
    let headers = [("x-api-key", KEY), ("traceparent", &parent)];
    let body = json!({
        "templateID": "base",
        "timeout": 60,
        "secure": true,
        "envVars": { "V": SECRETS[1] },
        "metadata": { "m": SECRETS[2] },
    });
    let created = server.send("POST", "/sandboxes", &headers, body.to_string()).await.json();
    let id = created["sandboxID"].as_str().unwrap();
    let token = created["envdAccessToken"].as_str().unwrap();
    for (method, path, status) in [("POST", "/pause", 204), ("POST", "/resume", 201), ("DELETE", "", 204)] {
        let reply = server.send(method, &format!("/sandboxes/{id}{path}"), &headers, "{}").await;
        assert_eq!(reply.status.as_u16(), status, "{}", reply.text);
    }
    server.call("GET", &format!("/nothing/here?token={token}"), Value::Null).await;
    traces.stop().await;

    let spans = collector.spans();
    assert!(spans.iter().all(|(service, _)| service == "sandcove"));
    let named: HashMap<&str, &Span> = spans.iter().map(|(_, span)| (span.name.as_str(), span)).collect();
    let under = |child: &str, parent: &str| {
        let (child, parent) = (named[child], named[parent]);
        assert_eq!(child.parent_span_id, parent.span_id, "{} is not under {}", child.name, parent.name);
        assert_eq!(child.trace_id, parent.trace_id);
    };
    for (request, status) in [
        ("POST /sandboxes", "201"),
        ("POST /sandboxes/{id}/pause", "204"),
        ("POST /sandboxes/{id}/resume", "201"),
        ("DELETE /sandboxes/{id}", "204"),
    ] {
        let span = named[request];
        assert_eq!(hex(&span.trace_id), TRACE);
        assert_eq!(hex(&span.parent_span_id), CALLER);
        assert_eq!(span.kind, SpanKind::Server as i32);
        let (method, route) = request.split_once(' ').unwrap();
        assert_eq!(text(&span.attributes, "http.request.method"), method);
        assert_eq!(text(&span.attributes, "http.route"), route);
        assert_eq!(text(&span.attributes, "http.response.status_code"), status);
        assert_eq!(text(&span.attributes, "sandbox_id"), id);
        assert!(!text(&span.attributes, "team_id").is_empty());
    }
    under("create", "POST /sandboxes");
    for phase in ["queue", "launch", "record"] {
        under(phase, "create");
    }
    for phase in ["prepare", "assign"] {
        under(phase, "launch");
        let (part, whole) = (named[phase], named["launch"]);
        assert!(part.start_time_unix_nano <= part.end_time_unix_nano);
        assert!(part.start_time_unix_nano >= whole.start_time_unix_nano, "{phase} begins before its start");
    }
    assert_eq!(named.len(), spans.len(), "no span is sent twice");
    under("pause", "POST /sandboxes/{id}/pause");
    under("resume", "POST /sandboxes/{id}/resume");
    under("kill", "DELETE /sandboxes/{id}");
    for change in ["create", "launch", "prepare", "assign", "record", "pause", "resume", "kill"] {
        assert_eq!(text(&named[change].attributes, "sandbox_id"), id);
    }
    // What matches no route is not named by its path.
    assert_eq!(text(&named["api"].attributes, "http.response.status_code"), "404");
    for body in collector.bodies.lock().unwrap().iter() {
        let body = String::from_utf8_lossy(body);
        for secret in SECRETS.into_iter().chain([token]) {
            assert!(!body.contains(secret), "{secret} went out");
        }
    }
}

#[tokio::test]
async fn without_a_collector_requests_are_answered_and_lost_spans_counted() {
    let _alone = SUBSCRIBED.lock().await;
    // Bound and not listening: nobody else gets this port, and nobody answers.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (traces, _guard) = trace_to(&format!("http://{}/v1/traces", socket.local_addr().unwrap()));
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.status, 204);
    traces.stop().await;
    let metrics = server.send("GET", "/metrics", &[("x-admin-token", "admin")], "").await.text;
    let line = metrics.lines().find(|line| line.starts_with("sandcove_trace_spans_dropped_total ")).unwrap();
    let dropped: u64 = line.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(dropped > 0, "{line}");
}

#[tokio::test]
async fn an_endpoint_that_is_none_is_refused_and_not_shown() {
    for endpoint in
        ["collector:4318", "ftp://collector/", "http://me:my-password@collector:4318/v1/traces", ""]
    {
        let logs = Endpoints { traces: None, logs: Some(Secret::new(endpoint)) };
        let refused = Otlp::start(&logs).unwrap_err();
        assert!(matches!(refused, InvalidEndpoint::Url("logs")));
        assert!(!refused.to_string().contains("my-password"));
    }
}

#[tokio::test]
async fn a_collector_gets_lines_of_the_log_with_the_id_of_their_request() {
    let _alone = SUBSCRIBED.lock().await;
    let collector = Collector::default();
    let endpoints = Endpoints { traces: None, logs: Some(Secret::new(collector.listen().await)) };
    let otlp = Otlp::start(&endpoints).unwrap();
    let filter = tracing_subscriber::filter::LevelFilter::DEBUG;
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(otlp.logs(filter)));
    let server = Server::start().await;
    server
        .send("GET", "/sandboxes/inosuchsandbox", &[("x-api-key", KEY), ("x-request-id", "mine-2")], "")
        .await;
    drop(guard);
    otlp.stop().await;
    let mut lines = Vec::new();
    for body in collector.bodies.lock().unwrap().iter() {
        assert!(!String::from_utf8_lossy(body).contains(KEY));
        for group in ExportLogsServiceRequest::decode(body.clone()).unwrap().resource_logs {
            assert_eq!(text(&group.resource.as_ref().unwrap().attributes, "service.name"), "sandcove");
            lines.extend(group.scope_logs.into_iter().flat_map(|scope| scope.log_records));
        }
    }
    let is = |line: &LogRecord, text: &str| matches!(line.body.as_ref().and_then(|body| body.value.as_ref()), Some(Kind::StringValue(body)) if body == text);
    let line = lines.iter().find(|line| is(line, "request refused")).unwrap();
    assert_eq!(text(&line.attributes, "request_id"), "mine-2");
    assert_eq!(line.severity_text, "DEBUG");
}

#[tokio::test]
async fn a_collector_gets_the_metrics_when_the_server_stops() {
    let _alone = SUBSCRIBED.lock().await;
    let collector = Collector::default();
    let to = Secret::new(collector.listen().await);
    let server = Server::with(|config| config.metrics_to = Some(to)).await;
    let id = server.id(json!({})).await;
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.status, 204);
    server.restart().await;
    let body = collector.bodies.lock().unwrap().last().unwrap().clone();
    let groups = ExportMetricsServiceRequest::decode(body).unwrap().resource_metrics;
    assert_eq!(text(&groups[0].resource.as_ref().unwrap().attributes, "service.name"), "sandcove");
    let metrics = &groups[0].scope_metrics[0].metrics;
    let named =
        |name: &str| metrics.iter().find(|metric| metric.name == name).and_then(|metric| metric.data.clone());
    let Some(Data::Sum(starts)) = named("sandcove_sandbox_starts") else { panic!("{metrics:?}") };
    assert_eq!(text(&starts.data_points[0].attributes, "result"), "started");
    assert_eq!(starts.data_points[0].value, Some(Number::AsDouble(1.0)));
    let Some(Data::Histogram(seconds)) = named("sandcove_sandbox_start_seconds") else {
        panic!("{metrics:?}")
    };
    assert_eq!(seconds.data_points[0].bucket_counts.iter().sum::<u64>(), 1);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A log in memory.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn lines_of_the_log_have_the_id_of_their_request_whatever_is_logged() {
    let _alone = SUBSCRIBED.lock().await;
    let lines = Lines::default();
    let writer = lines.clone();
    // Lines of this kind are written at `debug`, their spans would not be seen at `warn` if they were less severe.
    let filter = tracing_subscriber::filter::filter_fn(|metadata| {
        *metadata.level() <= tracing::Level::WARN || metadata.is_event()
    });
    let log = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(move || writer.clone());
    let subscriber = tracing_subscriber::registry().with(log.with_filter(filter));
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = Server::start().await;
    server
        .send("GET", "/sandboxes/inosuchsandbox", &[("x-api-key", KEY), ("x-request-id", "mine-1")], "")
        .await;
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let line = text.lines().find(|line| line.contains("request refused")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["spans"][0]["request_id"], "mine-1", "{line}");
    assert!(!text.contains(KEY));
}
