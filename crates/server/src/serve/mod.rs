//! The listener: accepts connections, tells API requests from sandbox traffic, and stops in order.

mod clients;
mod connection;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use futures_util::future::BoxFuture;
use http::uri::Authority;
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use sandcove_isolate::{descriptor_limit, notice_lost_peer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use tracing::Instrument;
use tracing::field::Empty;

use crate::http::{Requested, deadline, router};
use crate::proxy::body::Answer;
use crate::proxy::error_page::format_for;
use crate::proxy::host_route::{Prefixes, Target, requested_host, route};
use crate::proxy::{self, refused};
use crate::sandboxes::Upload;
use crate::state::App;
use crate::{Error, Result, traces};
use clients::Clients;
use connection::{ClientConnection, Resetting};

/// Pause after a connection could not be accepted, most likely because there are too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Maximum size of the head of a request over HTTP/1, bytes.
const MAX_HEAD: usize = 128 << 10;
/// Maximum number of requests at once on a connection of HTTP/2.
const MAX_STREAMS: u32 = 200;

impl App {
    /// Serves until `shutdown`. Requests in progress then get the grace period, sandbox streams are cut, and the store is
    /// written out. Sandboxes stay as they are and are recovered at the next start.
    pub fn serve(&self, listener: TcpListener, shutdown: CancellationToken) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.accept(listener, shutdown))
    }

    async fn accept(&self, listener: TcpListener, shutdown: CancellationToken) -> Result<()> {
        self.set_local_addr(listener.local_addr().map_err(Error::Serve)?);
        self.builds().resume().await?;
        let server = Arc::new(Server::new(self.clone()));
        let connections = TaskTracker::new();
        let closing = CancellationToken::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = shutdown.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    connections.spawn(server.clone().connection(stream, peer.ip(), closing.clone()));
                }
                Err(err) => {
                    tracing::warn!(error = %err, "connection could not be accepted; idle ones are closed");
                    server.clients.make_room();
                    self.sandboxes().close_idle_connections();
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
        drop(listener);
        self.set_draining();
        closing.cancel();
        connections.close();
        self.sandboxes().cut_streams();
        if tokio::time::timeout(self.config().grace, connections.wait()).await.is_err() {
            tracing::warn!(open = connections.len(), "stopping with connections still open");
        }
        self.stop().await;
        Ok(())
    }
}

/// The state of the listener's connections.
struct Server {
    app: App,
    router: Router,
    prefixes: Prefixes,
    clients: Clients,
}

impl Server {
    fn new(app: App) -> Self {
        let config = app.config();
        let prefixes = Prefixes { api: config.api_prefix.clone(), sandbox: config.sandbox_prefix.clone() };
        let clients = Clients::new(descriptor_limit(), config.header_timeout);
        Self { router: router(app.clone()), prefixes, clients, app }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, peer: IpAddr, closing: CancellationToken) {
        let Some(place) = self.clients.admit(peer) else {
            tracing::debug!(%peer, "connection refused: too many are in use");
            return;
        };
        let prepared = stream.set_nodelay(true).and_then(|()| notice_lost_peer(&stream));
        if let Err(err) = prepared {
            tracing::debug!(error = %err, "connection ended before it began");
            return;
        }
        let watched = self.clients.watch(&place);
        let stream = ClientConnection::new(stream, place);
        let cut_short = stream.cut_short();
        let service = service_fn(|request: Request<Incoming>| {
            let server = self.clone();
            let is_framed = request.version() >= Version::HTTP_2;
            let reset = (!is_framed).then(|| cut_short.clone());
            let in_progress = watched.begin(is_framed);
            async move {
                let answer = server.answer(Upload::of(request)).await;
                // An answer of the API has to be read at last; a sandbox's may take for ever.
                let request = Some(in_progress).filter(|_| matches!(answer.body(), Answer::Sandbox(_)));
                Ok::<_, std::convert::Infallible>(answer.map(|body| Resetting::new(body, reset, request)))
            }
        });
        // Both versions of the protocol. No timers of theirs: on HTTP/1, the one for heads also ends connections that wait for
        // another request; on HTTP/2, some clients answer a ping only while they read.
        let mut builder = auto::Builder::new(TokioExecutor::new()).title_case_headers(true);
        builder.http1().max_buf_size(MAX_HEAD);
        builder.http2().max_concurrent_streams(MAX_STREAMS);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let result = tokio::select! {
            result = connection.as_mut() => result,
            () = closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            () = watched.is_over() => {
                tracing::debug!(%peer, "connection closed: nothing came of it");
                return;
            }
        };
        watched.hand_over();
        if let Err(err) = result {
            tracing::debug!(error = %err, "connection ended early");
        }
    }

    async fn answer(&self, request: Request<Upload>) -> Response<Answer> {
        let (uri, headers) = (request.uri(), request.headers());
        let host = requested_host(uri.authority().map(Authority::as_str), headers);
        match host.and_then(|host| route(host, headers, uri.path(), &self.prefixes)) {
            Ok((Target::Api, cut)) => self.api(request, cut).await.map(Answer::Api),
            Ok((target, cut)) => {
                let span = tracing::debug_span!("traffic", target = ?target);
                proxy::serve(&self.app, request, target, cut).instrument(span).await
            }
            Err(refusal) => refused(&refusal, format_for(request.headers())).map(Answer::Api),
        }
    }

    async fn api(&self, mut request: Request<Upload>, cut: usize) -> Response<axum::body::Body> {
        let requested = Requested::of(&request, cut);
        request.extensions_mut().insert(requested);
        if cut > 0 {
            *request.uri_mut() = proxy::local_uri(request.uri(), cut);
        }
        let id = uuid::Uuid::new_v4();
        let span = tracing::info_span!(
            "api",
            request_id = %id,
            team_id = Empty,
            sandbox_id = Empty,
            http.request.method = %request.method(),
            http.route = Empty,
            http.response.status_code = Empty,
            otel.kind = "server",
            otel.status_code = Empty,
        );
        traces::continue_from(&span, request.headers());
        let deadline = deadline(request.uri().path());
        let answer = self.router.clone().oneshot(request.map(axum::body::Body::new)).instrument(span.clone());
        let answer = match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Err(_) => span.in_scope(|| Error::Deadline.into_response()),
        };
        span.record("http.response.status_code", answer.status().as_u16());
        if answer.status().is_server_error() {
            traces::failed(&span);
        }
        traces::end(&span);
        answer
    }
}
