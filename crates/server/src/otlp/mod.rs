//! What a collector of OpenTelemetry data gets (OTLP over HTTP, protobuf): spans, lines of the log, and metrics. Off unless there is an
//! endpoint; then nothing here is set up, and spans and lines cost nothing.

mod logs;
mod metrics;
mod post;
mod queue;
mod spans;

use std::time::Duration;

use http::Uri;
use opentelemetry_sdk::Resource;
use sandcove_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Subscriber;
use tracing_subscriber::layer::{Filter, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use logs::Logs;
use spans::Spans;

pub(crate) use logs::dropped_records;
pub(crate) use metrics::send as send_metrics;
pub(crate) use spans::{continue_from, dropped_spans, end, failed, record_start, rename};

/// Service name unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` says otherwise.
const SERVICE: &str = "sandcove";
/// Time that a stop waits for the collector to accept the last of what is sent.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// The reason for which nothing can be sent to an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum InvalidEndpoint {
    /// The endpoint is not a URL of a collector. The message does not show it, because it may contain a password.
    #[error("the endpoint for {0} must be a URL like `http://collector:4318`, without user and password")]
    Url(&'static str),
    /// The settings in `OTEL_*` variables are invalid.
    #[error("failed to set up what is sent to the collector: {0}")]
    Settings(String),
}

/// Where traces and logs are sent, each a whole URL. They may hold passwords by mistake, so that they do not show.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Endpoints {
    /// Where spans go.
    pub traces: Option<Secret>,
    /// Where lines of the log go.
    pub logs: Option<Secret>,
}

/// The sender of spans and of lines of the log; active once its layers are part of the subscriber of this process. The default sends nothing.
#[derive(Debug, Default)]
pub struct Otlp {
    spans: Option<Spans>,
    logs: Option<Logs>,
    stopping: CancellationToken,
    sending: Vec<JoinHandle<()>>,
}

/// The log of a process.
#[derive(Debug)]
pub struct Log {
    /// Filter of the lines that are written.
    pub written: EnvFilter,
    /// Filter of the lines that are sent to a collector, if there is one.
    pub sent: EnvFilter,
    /// Whether each line is a JSON object.
    pub is_json: bool,
    /// Whether lines are coloured, unless they are JSON.
    pub is_coloured: bool,
}

impl Otlp {
    /// Starts sending. Must be called within a runtime. The collector may start later.
    ///
    /// # Errors
    /// When an endpoint is no URL of a collector, or a variable of OpenTelemetry is invalid.
    pub fn start(endpoints: &Endpoints) -> Result<Self, InvalidEndpoint> {
        let (resource, stopping) = (resource(), CancellationToken::new());
        let (mut spans, mut logs, mut sending) = (None, None, Vec::new());
        if let Some(endpoint) = &endpoints.traces {
            let endpoint = collector("traces", endpoint)?;
            let (started, task) = Spans::start(endpoint, resource.clone(), stopping.clone())?;
            spans = Some(started);
            sending.push(task);
        }
        if let Some(endpoint) = &endpoints.logs {
            let (started, task) = Logs::start(collector("logs", endpoint)?, resource, stopping.clone())?;
            logs = Some(started);
            sending.push(task);
        }
        Ok(Self { spans, logs, stopping, sending })
    }

    /// Begins to write the log of this process to standard error, and to send what there is a collector for. To be called once.
    // Here, and not where it is called: what every request passes is compiled with this crate, and optimized.
    pub fn observe(&self, log: Log) {
        let Log { written, sent, is_json, is_coloured } = log;
        let lines = tracing_subscriber::fmt::layer()
            // The layer would panic when standard error is closed.
            .log_internal_errors(false)
            .with_ansi(is_coloured)
            .with_writer(std::io::stderr);
        let lines: Box<dyn Layer<_> + Send + Sync> = match is_json {
            false => Box::new(lines.with_filter(written)),
            true => Box::new(lines.json().flatten_event(true).with_current_span(false).with_filter(written)),
        };
        tracing_subscriber::registry().with(self.spans()).with(self.logs(sent)).with(lines).init();
    }

    /// The layer that collects spans.
    pub fn spans<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> Option<impl Layer<S> + use<S>> {
        self.spans.as_ref().map(Spans::layer)
    }

    /// The layer that collects the lines of the log that `filter` lets through.
    pub fn logs<S, F>(&self, filter: F) -> Option<impl Layer<S> + use<S, F>>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
        F: Filter<S> + Send + Sync + 'static,
    {
        self.logs.as_ref().map(|logs| logs.layer(filter))
    }

    /// Sends what remains, within a short timeout.
    pub async fn stop(self) {
        self.stopping.cancel();
        let deadline = tokio::time::Instant::now() + STOP_TIMEOUT;
        for sending in self.sending {
            let ending = sending.abort_handle();
            if tokio::time::timeout_at(deadline, sending).await.is_err() {
                ending.abort();
                tracing::warn!("the collector took too long for the last traces or logs, they are lost");
            }
        }
    }
}

/// The address of a collector of `what`.
fn collector(what: &'static str, endpoint: &Secret) -> Result<Uri, InvalidEndpoint> {
    let uri: Uri = endpoint.expose().parse().map_err(|_| InvalidEndpoint::Url(what))?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_password = uri.authority().is_none_or(|authority| authority.as_str().contains('@'));
    if is_web && !has_password { Ok(uri) } else { Err(InvalidEndpoint::Url(what)) }
}

/// The name of the sender: that of this program, or what the variables of OpenTelemetry say.
fn resource() -> Resource {
    let unnamed = Resource::builder().build();
    let is_named = unnamed.get(&"service.name".into()).is_some_and(|name| {
        let name = name.as_str();
        !name.is_empty() && !name.starts_with("unknown_service")
    });
    if is_named { unnamed } else { Resource::builder().with_service_name(SERVICE).build() }
}
