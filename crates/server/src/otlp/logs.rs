//! Lines of the log, as the log of the server process has them, with what their spans say: the id of the request is part of it.

use std::time::Duration;

use http::Uri;
use opentelemetry::InstrumentationScope;
use opentelemetry_appender_tracing::layer::{OpenTelemetryTracingBridge, TracingSpanAttributes};
use opentelemetry_otlp::LogExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogBatch, LogProcessor, SdkLogRecord, SdkLoggerProvider};
use prometheus_client::metrics::counter::Counter;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::layer::Filter;
use tracing_subscriber::registry::LookupSpan;

use super::InvalidEndpoint;
use super::post::over_http;
use super::queue::{self, Dropped, Export, Queue};

/// A line of the log, and what wrote it.
type Line = (SdkLogRecord, InstrumentationScope);

/// The sender of lines of the log.
#[derive(Debug)]
pub(super) struct Logs {
    provider: SdkLoggerProvider,
}

impl Logs {
    /// Sends lines to `endpoint` until `stopping`.
    pub(super) fn start(
        endpoint: Uri,
        resource: Resource,
        stopping: CancellationToken,
    ) -> Result<(Self, JoinHandle<()>), InvalidEndpoint> {
        let mut exporter = over_http(LogExporter::builder().with_http(), &endpoint)
            .build()
            .map_err(|err| InvalidEndpoint::Settings(err.to_string()))?;
        opentelemetry_sdk::logs::LogExporter::set_resource(&mut exporter, &resource);
        let (queue, waiting) = Queue::new(dropped_records());
        let sending = tokio::spawn(queue::send(exporter, waiting, stopping, endpoint));
        let provider = SdkLoggerProvider::builder().with_resource(resource).with_log_processor(queue).build();
        Ok((Self { provider }, sending))
    }

    /// The layer that collects the lines that `filter` lets through.
    pub(super) fn layer<S, F>(&self, filter: F) -> impl Layer<S> + use<S, F>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
        F: Filter<S> + Send + Sync + 'static,
    {
        let bridge = OpenTelemetryTracingBridge::builder(&self.provider)
            .with_tracing_span_attributes(TracingSpanAttributes::all())
            .build();
        bridge.with_filter(filter.and(filter_fn(is_not_of_sending)))
    }
}

/// Whether a line is about something else than the sending of lines, which would go on for ever.
fn is_not_of_sending(metadata: &Metadata<'_>) -> bool {
    !metadata.target().starts_with("sandcove_server::otlp") && !metadata.target().starts_with("opentelemetry")
}

impl LogProcessor for Queue<Line> {
    fn emit(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        self.put((record.clone(), scope.clone()));
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Export<Line> for LogExporter {
    const WHAT: &str = "logs";

    async fn export(&self, batch: Vec<Line>) -> OTelSdkResult {
        let lines: Vec<_> = batch.iter().map(|(record, scope)| (record, scope)).collect();
        opentelemetry_sdk::logs::LogExporter::export(self, LogBatch::new(&lines)).await
    }
}

/// The counter of lines that no collector accepted; one for the process, like the subscriber.
pub(crate) fn dropped_records() -> Dropped {
    static DROPPED: std::sync::LazyLock<Counter> = std::sync::LazyLock::new(Counter::default);
    DROPPED.clone()
}
