//! Traces for operators: spans of requests and of what they change in sandboxes, sent to a collector of OpenTelemetry data
//! (OTLP over HTTP, protobuf). Off unless there is an endpoint; then nothing here is set up and spans cost nothing.
//!
//! Only spans of this program go out, with the ids, the route and the status they have: no events of the log, no headers,
//! paths, queries or bodies.

mod post;
mod queue;

use std::time::Duration;

use http::{HeaderMap, Uri};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span as _, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{KeyValue, global};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use prometheus_client::metrics::counter::Counter;
use sandcove_host::Handle;
use sandcove_isolate::{StartPhase, StartPhaseKind};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use post::Post;
use queue::{Dropped, Queue};

/// Service name of spans unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` says otherwise.
const SERVICE: &str = "sandcove";
/// Time that a stop waits for the collector to accept the last spans.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// The reason for which traces cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTraces {
    /// The endpoint is not a URL of a collector. The message does not show it, because it may contain a password.
    #[error("the endpoint for traces must be a URL like `http://collector:4318`, without user and password")]
    Endpoint,
    /// The settings in `OTEL_*` variables are invalid.
    #[error("failed to set up the sending of traces: {0}")]
    Settings(String),
}

/// The sender of spans; active once its [`Traces::layer`] is part of the subscriber of this process.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    stopping: CancellationToken,
    sending: JoinHandle<()>,
}

impl Traces {
    /// Starts sending to `endpoint`, the whole URL. Must be called within a runtime. The collector may start later.
    pub fn start(endpoint: &str) -> Result<Self, InvalidTraces> {
        let uri: Uri = endpoint.parse().map_err(|_| InvalidTraces::Endpoint)?;
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        if !is_web || uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err(InvalidTraces::Endpoint);
        }
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Post::default())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint)
            .build()
            .map_err(|err| InvalidTraces::Settings(err.to_string()))?;
        let resource = resource();
        opentelemetry_sdk::trace::SpanExporter::set_resource(&mut exporter, &resource);
        let (queue, waiting) = Queue::new(dropped());
        let stopping = CancellationToken::new();
        let sending = tokio::spawn(queue::send(exporter, waiting, stopping.clone(), uri));
        let provider =
            SdkTracerProvider::builder().with_resource(resource).with_span_processor(queue).build();
        global::set_tracer_provider(provider.clone());
        Ok(Self { provider, stopping, sending })
    }

    /// The layer that collects spans.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer(SERVICE))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(filter_fn(is_ours).with_max_level_hint(LevelFilter::INFO))
    }

    /// Sends the remaining spans, within a short timeout.
    pub async fn stop(self) {
        self.stopping.cancel();
        let ending = self.sending.abort_handle();
        if tokio::time::timeout(STOP_TIMEOUT, self.sending).await.is_err() {
            ending.abort();
            tracing::warn!("the collector took too long for the last traces, they are lost");
        }
    }
}

/// Names of spans that only the log has: what streams as long as it likes is not traced.
const LOGGED_ONLY: [&str; 2] = ["traffic", "mcp"];

/// Whether a span or event is a span of this program; events of the log are not sent, and spans of the host side are made here
/// ([`record_start`]).
fn is_ours(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    metadata.is_span()
        && *metadata.level() <= Level::INFO
        && !LOGGED_ONLY.contains(&metadata.name())
        && target.starts_with("sandcove")
        && !target.starts_with("sandcove_isolate")
}

fn resource() -> Resource {
    let unnamed = Resource::builder().build();
    let is_named = unnamed.get(&"service.name".into()).is_some_and(|name| {
        let name = name.as_str();
        !name.is_empty() && !name.starts_with("unknown_service")
    });
    if is_named { unnamed } else { Resource::builder().with_service_name(SERVICE).build() }
}

/// Makes `span` part of the trace that the request belongs to already, by its `traceparent` header.
pub(crate) fn continue_from(span: &Span, headers: &HeaderMap) {
    // The span is not collected, or the request belongs to no trace.
    if span.is_disabled() || !headers.contains_key("traceparent") {
        return;
    }
    let caller = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
    // Fails only for spans that go to the log alone.
    let _ = span.set_parent(caller);
}

/// Renames `span`, which began before its name was known.
pub(crate) fn rename(span: &Span, name: String) {
    span.context().span().update_name(name);
}

/// Ends `span` now, since others, such as the database's threads, may hold it for longer.
pub(crate) fn end(span: &Span) {
    span.context().span().end();
}

/// Makes the parts of a sandbox's start spans below the current one. The host side has timed them, maybe in another process.
pub(crate) fn record_start(handle: &Handle) {
    let parent = Span::current().context();
    // The start is not collected.
    if !parent.span().span_context().is_sampled() {
        return;
    }
    let tracer = global::tracer(SERVICE);
    for StartPhase { kind, began, took } in handle.phases() {
        let mut attributes = vec![KeyValue::new("sandbox_id", handle.id().to_string())];
        let name = match kind {
            StartPhaseKind::Prepare => "prepare",
            StartPhaseKind::Assign { pooled } => {
                attributes.push(KeyValue::new("pooled", *pooled));
                "assign"
            }
        };
        let span = tracer.span_builder(name).with_start_time(*began).with_attributes(attributes);
        span.start_with_context(&tracer, &parent).end_with_timestamp(*began + *took);
    }
}

/// Marks `span` as failed.
pub(crate) fn failed(span: &Span) {
    span.record("otel.status_code", "ERROR");
}

/// The counter of spans that no collector accepted; one for the process, like the subscriber.
pub(crate) fn dropped() -> Dropped {
    static DROPPED: std::sync::LazyLock<Counter> = std::sync::LazyLock::new(Counter::default);
    DROPPED.clone()
}
