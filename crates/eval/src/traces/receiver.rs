//! The receiver of spans: OTLP over HTTP, while a run lasts.

use std::convert::Infallible;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use flate2::read::GzDecoder;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::{Collector, TraceSettings, otlp};

/// The longest request, also after it is unpacked.
const MAX_BODY: usize = 10 * 1024 * 1024;

/// Reason why spans cannot be received.
#[derive(Debug, thiserror::Error)]
#[error("failed to receive traces at {address}: {error}; set another `tracing.otlp.http.port`")]
pub struct ReceiverError {
    address: String,
    error: std::io::Error,
}

/// A receiver, which ends when it is dropped.
#[derive(Debug)]
pub struct Receiver(JoinHandle<()>);

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Shared {
    collector: Arc<Collector>,
    settings: TraceSettings,
}

impl Receiver {
    /// Receives spans for a collector at the address of the settings, if they have one.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn start(
        settings: &TraceSettings,
        collector: &Arc<Collector>,
    ) -> Result<Option<Self>, ReceiverError> {
        let Some((host, port)) = &settings.address else { return Ok(None) };
        let bound = TcpListener::bind((host.as_str(), *port)).await;
        let listener = bound.map_err(|error| ReceiverError { address: format!("{host}:{port}"), error })?;
        let shared = Arc::new(Shared { collector: Arc::clone(collector), settings: settings.clone() });
        Ok(Some(Self(tokio::spawn(accept(listener, shared)))))
    }
}

/// Serves connections until the task is ended, and they with it.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let shared = Arc::clone(&shared);
                    let answer = service_fn(move |request| {
                        let shared = Arc::clone(&shared);
                        async move { Ok::<_, Infallible>(answer(&shared, request).await) }
                    });
                    // What goes wrong with a connection is for its client to see.
                    connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
                }
                Err(error) => {
                    tracing::warn!("failed to accept a connection for traces: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::POST, "/v1/traces") => {
            let (parts, body) = request.into_parts();
            match Limited::new(body, MAX_BODY).collect().await {
                Ok(body) => receive(shared, &parts.headers, &body.to_bytes()),
                Err(_) => refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is cut off, or too long"),
            }
        }
        _ => refused(StatusCode::NOT_FOUND, "spans are posted to /v1/traces"),
    };
    let mut response = Response::new(Full::from(text.to_string()));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

type Reply = (StatusCode, Value);

fn refused(status: StatusCode, error: &str) -> Reply {
    (status, json!({"error": error}))
}

fn receive(shared: &Shared, headers: &HeaderMap, body: &[u8]) -> Reply {
    let text = |name: header::HeaderName| {
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    };
    let kind = text(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_lowercase();
    let body = match text(header::CONTENT_ENCODING) {
        "" | "identity" => body.to_vec(),
        "gzip" => match unpacked(body) {
            Some(body) => body,
            None => return refused(StatusCode::BAD_REQUEST, "the body is not gzip, or too long"),
        },
        _ => return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be plain or gzip"),
    };
    let spans = match kind.as_str() {
        "application/json" if shared.settings.json => match serde_json::from_slice(&body) {
            Ok(request) => otlp::from_json(&request),
            Err(_) => return refused(StatusCode::BAD_REQUEST, "the body is not JSON"),
        },
        "application/x-protobuf" if shared.settings.protobuf => match otlp::from_protobuf(&body) {
            Ok(spans) => spans,
            Err(_) => return refused(StatusCode::BAD_REQUEST, "the body is not OTLP in protobuf"),
        },
        _ => return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported content type"),
    };
    for (trace, span) in spans {
        shared.collector.add(&trace, span);
    }
    (StatusCode::OK, json!({"partialSuccess": {}}))
}

/// Returns what a body of gzip holds, unless that is too long.
fn unpacked(body: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let mut limited = GzDecoder::new(body).take(MAX_BODY as u64 + 1);
    limited.read_to_end(&mut plain).ok()?;
    (plain.len() <= MAX_BODY).then_some(plain)
}
