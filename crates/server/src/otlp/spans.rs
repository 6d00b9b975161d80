//! Spans of requests and of what they change in sandboxes.
//!
//! Only spans of this program go out, with the ids, the route and the status they have: no headers, paths, queries or bodies.

use std::time::Duration;

use http::{HeaderMap, Uri};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span as _, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue, global};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanProcessor};
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

use super::post::over_http;
use super::queue::{self, Dropped, Export, Queue};
use super::{InvalidEndpoint, SERVICE};

/// The sender of spans.
#[derive(Debug)]
pub(super) struct Spans {
    provider: SdkTracerProvider,
}

impl Spans {
    /// Sends spans to `endpoint` until `stopping`.
    pub(super) fn start(
        endpoint: Uri,
        resource: Resource,
        stopping: CancellationToken,
    ) -> Result<(Self, JoinHandle<()>), InvalidEndpoint> {
        let mut exporter = over_http(SpanExporter::builder().with_http(), &endpoint)
            .build()
            .map_err(|err| InvalidEndpoint::Settings(err.to_string()))?;
        opentelemetry_sdk::trace::SpanExporter::set_resource(&mut exporter, &resource);
        let (queue, waiting) = Queue::new(dropped_spans());
        let sending = tokio::spawn(queue::send(exporter, waiting, stopping, endpoint));
        let provider =
            SdkTracerProvider::builder().with_resource(resource).with_span_processor(queue).build();
        global::set_tracer_provider(provider.clone());
        Ok((Self { provider }, sending))
    }

    /// The layer that collects spans.
    pub(super) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer(SERVICE))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(filter_fn(is_ours).with_max_level_hint(LevelFilter::INFO))
    }
}

impl SpanProcessor for Queue<SpanData> {
    fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            self.put(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Export<SpanData> for SpanExporter {
    const WHAT: &str = "traces";

    fn export(&self, batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        opentelemetry_sdk::trace::SpanExporter::export(self, batch)
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
pub(crate) fn dropped_spans() -> Dropped {
    static DROPPED: std::sync::LazyLock<Counter> = std::sync::LazyLock::new(Counter::default);
    DROPPED.clone()
}
