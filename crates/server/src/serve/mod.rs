//! The listener: accepts connections, tells API requests from sandbox traffic, and stops in order.

mod clients;
mod connection;
mod listeners;
mod report;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::response::IntoResponse;
use futures_util::future::BoxFuture;
use http::uri::Authority;
use http::{Method, Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use sandcove_isolate::{bound_unsent, descriptor_limit, notice_lost_peer};
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use tracing::Instrument;
use tracing::field::Empty;

use crate::dashboard::{self, Course, Dashboard};
use crate::http::{Origin, RequestId, Requested, router};
use crate::mcp::{self, Mcp};
use crate::proxy::body::Answer;
use crate::proxy::error_page::format_for;
use crate::proxy::host_route::{Prefixes, Target, requested_host, route};
use crate::proxy::{self, Format, refused};
use crate::sandboxes::Upload;
use crate::state::App;
use crate::tls::Certificates;
use crate::{Error, Result, otlp};
use clients::Clients;
use connection::{ClientConnection, Resetting, Stream};
use listeners::Door;
pub use listeners::Listeners;
use report::Report;

/// Pause after a connection could not be accepted, most likely because there are too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Maximum size of the head of a request over HTTP/1, bytes.
const MAX_HEAD: usize = 128 << 10;
/// Maximum number of header fields of a request over HTTP/1: an upload may have a hundred labels.
const MAX_HEADERS: usize = 1024;
/// Maximum number of requests at once on a connection of HTTP/2.
const MAX_STREAMS: u32 = 200;
/// Maximum size of the head of a request over HTTP/2, bytes: there may be as many of them as requests.
const MAX_HEADER_LIST: u32 = 32 << 10;
/// Bytes of an answer over HTTP/2 that are kept for a client that does not read.
const MAX_UNREAD: usize = 64 << 10;
/// Bytes that a client may send ahead over HTTP/2, for a request and for all requests of a connection.
const WINDOWS: (u32, u32) = (256 << 10, 1 << 20);
/// Requests over HTTP/2 that a client may take back before they were looked at, and those that the server may have to refuse, until
/// the connection is closed.
const MAX_RESETS: (usize, usize) = (20, 256);
/// Address of a client whose address is not known.
const UNKNOWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
/// Bytes on their way between a client in this process and the server.
const PIPE: usize = 64 << 10;
/// The first byte of a TLS connection: the type of a handshake record. No request of HTTP begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

impl App {
    /// Serves until `shutdown`. Requests in progress then get the grace period, sandbox streams are cut, and the store is
    /// written out. Sandboxes stay as they are and are recovered at the next start.
    pub fn serve(
        &self,
        listeners: impl Into<Listeners>,
        shutdown: CancellationToken,
    ) -> BoxFuture<'_, Result<()>> {
        self.serve_boxed(listeners.into(), shutdown)
    }

    // Not generic, so that all of the server is compiled with this crate: the code of an async function is compiled with the crate that
    // awaits it, and the command is not optimized.
    #[inline(never)]
    fn serve_boxed(&self, listeners: Listeners, shutdown: CancellationToken) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.accept(listeners, shutdown))
    }

    async fn accept(&self, listeners: Listeners, shutdown: CancellationToken) -> Result<()> {
        self.set_local_addr(listeners.address().map_err(Error::Serve)?);
        self.builds().resume().await?;
        let server = Arc::new(Server::new(self.clone()));
        let connections = TaskTracker::new();
        let closing = CancellationToken::new();
        let report = Report::start(self);
        loop {
            let accepted = tokio::select! {
                accepted = listeners.accept() => accepted,
                () = shutdown.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer, door)) => {
                    connections.spawn(server.clone().connection(stream, peer.ip(), door, closing.clone()));
                }
                Err(err) => {
                    tracing::warn!(error = %err, "connection could not be accepted; idle ones are closed");
                    server.clients.make_room();
                    self.sandboxes().close_idle_connections();
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
        drop(listeners);
        self.set_draining();
        server.mcp.close();
        closing.cancel();
        connections.close();
        self.sandboxes().cut_streams();
        if tokio::time::timeout(self.config().grace, connections.wait()).await.is_err() {
            tracing::warn!(open = connections.len(), "stopping with connections still open");
        }
        if let Some(report) = report {
            report.end().await;
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
    tls: Option<TlsAcceptor>,
    dashboard: Option<Dashboard>,
    mcp: Mcp,
}

impl Server {
    fn new(app: App) -> Self {
        let config = app.config();
        let prefixes = Prefixes { api: config.api_prefix.clone(), sandbox: config.sandbox_prefix.clone() };
        let clients = Clients::new(descriptor_limit(), config.header_timeout);
        let tls = config.tls.as_ref().map(Certificates::acceptor);
        let dashboard = config.dashboard.then(Dashboard::default);
        Self { router: router(app.clone()), prefixes, clients, tls, dashboard, mcp: Mcp::default(), app }
    }

    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: IpAddr,
        door: Door,
        closing: CancellationToken,
    ) {
        let Some(place) = self.clients.admit(peer) else {
            tracing::debug!(%peer, "connection refused: too many are in use");
            return;
        };
        let prepared = (stream.set_nodelay(true))
            .and_then(|()| notice_lost_peer(&stream))
            .and_then(|()| bound_unsent(&stream));
        if let Err(err) = prepared {
            tracing::debug!(error = %err, "connection ended before it began");
            return;
        }
        let watched = self.clients.watch(&place);
        // A handshake has as much time as the head of the first request.
        let stream = tokio::select! {
            biased;
            stream = self.secured(stream, door) => stream,
            () = closing.cancelled() => return,
            () = watched.is_over() => {
                tracing::debug!(%peer, "connection closed in its handshake");
                return;
            }
        };
        let stream = match stream {
            Ok(stream) => stream,
            Err(err) => {
                tracing::debug!(%peer, error = %err, "no connection came about");
                return;
            }
        };
        let is_tls = stream.is_tls();
        let stream = ClientConnection::new(stream, place);
        let cut_short = stream.cut_short();
        let service = service_fn(|mut request: Request<Incoming>| {
            let server = self.clone();
            let id = RequestId::of(request.headers());
            request.extensions_mut().insert(id.clone());
            let is_framed = request.version() >= Version::HTTP_2;
            let reset = (!is_framed).then(|| cut_short.clone());
            let (in_progress, asked_at) = watched.begin(is_framed);
            request.extensions_mut().insert(Origin { asked_at, peer, via: None });
            let watched = watched.clone();
            let only_reads = *request.method() == Method::GET;
            request.extensions_mut().insert(watched.memory());
            async move {
                let mut answer = match door {
                    Door::Main if server.needs_tls(peer, is_tls) => {
                        server.require_tls(&request).map(Answer::Api)
                    }
                    Door::Main => server.answer(Upload::of(request), is_tls).await,
                    Door::Redirect => server.redirect(&request).map(Answer::Api),
                };
                // A client has to read an answer of the API within the timeout of a waiting connection, so the request ends with the
                // head. A stream may take for ever, and its request ends with the body.
                let is_whole = matches!(answer.body(), Answer::Api(_));
                let request = Some(in_progress).filter(|_| !is_whole);
                let size = answer.body().size_hint().exact().filter(|_| is_whole);
                let mut unread = size.map(|size| watched.hold(size as usize));
                if only_reads && unread.take_if(|unread| !watched.has_room(unread)).is_some() {
                    answer = Error::TooManyUnread.into_response().map(Answer::Api);
                }
                id.stamp(&mut answer);
                let answer = answer.map(|body| Resetting::new(body, reset, request, watched, unread));
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        // Both versions of the protocol. No timers of theirs: on HTTP/1, the one for heads also ends connections that wait for
        // another request; on HTTP/2, some clients answer a ping only while they read.
        let mut builder = auto::Builder::new(TokioExecutor::new()).title_case_headers(true);
        builder.http1().max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
        builder
            .http2()
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADER_LIST)
            .max_send_buf_size(MAX_UNREAD)
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .max_pending_accept_reset_streams(MAX_RESETS.0)
            .max_local_error_reset_streams(MAX_RESETS.1);
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
        // An upgraded connection lives on in another task, with its place in the table.
        watched.hand_over();
        if let Err(err) = result {
            tracing::debug!(error = %err, "connection ended early");
        }
    }

    /// Begins TLS if the client does. Where it is set up, the first byte of a connection says so.
    async fn secured(&self, stream: TcpStream, door: Door) -> std::io::Result<Stream> {
        let Some(tls) = self.tls.as_ref().filter(|_| door == Door::Main) else {
            return Ok(Stream::Plain(stream));
        };
        let mut first = [0];
        match stream.peek(&mut first).await? {
            1 if first[0] == TLS_HANDSHAKE => Ok(Stream::Tls(Box::new(tls.accept(stream).await?))),
            _ => Ok(Stream::Plain(stream)),
        }
    }

    fn redirect(&self, request: &Request<Incoming>) -> Response<axum::body::Body> {
        let host = requested_host(request.uri().authority().map(Authority::as_str), request.headers());
        let port = self.app.local_addr().map_or(443, |address| address.port());
        listeners::redirect(request, host.ok().flatten(), port)
    }

    /// Whether a client has to come back with TLS. Programs on this machine need not.
    fn needs_tls(&self, peer: IpAddr, is_tls: bool) -> bool {
        !is_tls && self.app.config().tls_only && !peer.to_canonical().is_loopback()
    }

    /// Sends browsers on to TLS, and refuses other clients: a program that is sent on would go on sending its key in clear.
    fn require_tls(&self, request: &Request<Incoming>) -> Response<axum::body::Body> {
        match format_for(request.headers()) {
            Format::Html => self.redirect(request),
            Format::Json => Error::TlsOnly.into_response(),
        }
    }

    /// Answers a request, by its target: tools of agents, the dashboard and the API, or a sandbox.
    async fn answer(self: &Arc<Self>, request: Request<Upload>, is_tls: bool) -> Response<Answer> {
        let (uri, headers) = (request.uri(), request.headers());
        let host = requested_host(uri.authority().map(Authority::as_str), headers);
        match host.and_then(|host| route(host, headers, uri.path(), &self.prefixes)) {
            Ok((Target::Api, cut)) if uri.path().get(cut..) == Some(mcp::PATH) => {
                let is_secure = Requested::of(&request, cut, is_tls).is_secure(&self.app, headers);
                let (server, id) = (self.clone(), id_of(&request));
                let span = tracing::error_span!("mcp", request_id = %id);
                let peer = request.extensions().get::<Origin>().map_or(UNKNOWN, |origin| origin.peer);
                let connect = move || server.inside(id.clone(), peer);
                self.mcp.answer(&self.app, request, is_secure, connect).instrument(span).await
            }
            Ok((Target::Api, 0)) => match &self.dashboard {
                Some(dashboard) => self.by_dashboard(dashboard, request, is_tls).await,
                None => self.api(request, 0, is_tls).await.map(Answer::Api),
            },
            Ok((Target::Api, cut)) => self.api(request, cut, is_tls).await.map(Answer::Api),
            Ok((target, cut)) => self.traffic(request, target, cut).await,
            Err(refusal) => refused(&refusal, format_for(request.headers())).map(Answer::Api),
        }
    }

    /// Opens a connection of a client in this process, which acts for the request `id` of `peer`.
    fn inside(self: &Arc<Self>, id: RequestId, peer: IpAddr) -> DuplexStream {
        let (client, end) = tokio::io::duplex(PIPE);
        let server = self.clone();
        tokio::spawn(async move {
            let service = service_fn(|mut request: Request<Incoming>| {
                let server = server.clone();
                request.extensions_mut().insert(id.clone());
                request.extensions_mut().insert(Origin { asked_at: Instant::now(), peer, via: Some("mcp") });
                async move { Ok::<_, std::convert::Infallible>(server.answer(Upload::of(request), true).await) }
            });
            // It ends with its client, whose errors say why.
            let _ = http1::Builder::new()
                .max_headers(MAX_HEADERS)
                .serve_connection(TokioIo::new(end), service)
                .await;
        });
        client
    }

    async fn traffic(&self, request: Request<Upload>, target: Target, cut: usize) -> Response<Answer> {
        let span = tracing::error_span!("traffic", request_id = %id_of(&request), target = ?target);
        let shares_origin = target == Target::SomeAgent;
        let mut answer = proxy::serve(&self.app, request, target, cut).instrument(span).await;
        if shares_origin {
            dashboard::harmless(&mut answer);
        }
        answer
    }

    /// Answers a request without a prefix: one for a page or of a page, if the dashboard says so, and otherwise a call of the API.
    async fn by_dashboard(
        &self,
        dashboard: &Dashboard,
        request: Request<Upload>,
        is_tls: bool,
    ) -> Response<Answer> {
        if dashboard::is_front_page(&request) {
            return dashboard::front_page().map(Answer::Api);
        }
        let requested = Requested::of(&request, 0, is_tls);
        match dashboard.take(&self.app, request, &requested).await {
            Course::Elsewhere(request) => self.api(request, 0, is_tls).await.map(Answer::Api),
            Course::Answered(answer) => answer.map(Answer::Api),
            Course::Api(mut request) => {
                if let Some(origin) = request.extensions_mut().get_mut::<Origin>() {
                    origin.via = Some("dashboard");
                }
                Dashboard::seal(self.api(request, 0, is_tls).await).map(Answer::Api)
            }
            Course::Sandbox(request, target) => Dashboard::seal(self.traffic(request, target, 0).await),
        }
    }

    async fn api(
        &self,
        mut request: Request<Upload>,
        cut: usize,
        is_tls: bool,
    ) -> Response<axum::body::Body> {
        let requested = Requested::of(&request, cut, is_tls);
        request.extensions_mut().insert(requested);
        if cut > 0 {
            *request.uri_mut() = proxy::local_uri(request.uri(), cut);
        }
        // As severe as can be, so that the lines of every level of the log have the id.
        let span = tracing::error_span!(
            "api",
            request_id = %id_of(&request),
            team_id = Empty,
            sandbox_id = Empty,
            http.request.method = %request.method(),
            http.route = Empty,
            http.response.status_code = Empty,
            otel.kind = "server",
            otel.status_code = Empty,
        );
        otlp::continue_from(&span, request.headers());
        let answer = self.router.clone().oneshot(request.map(axum::body::Body::new)).instrument(span.clone());
        let Ok(answer) = answer.await;
        span.record("http.response.status_code", answer.status().as_u16());
        if answer.status().is_server_error() {
            otlp::failed(&span);
        }
        otlp::end(&span);
        answer
    }
}

/// The id of a request, which it got when it came.
fn id_of<B>(request: &Request<B>) -> RequestId {
    let id = request.extensions().get::<RequestId>().cloned();
    id.unwrap_or_else(|| RequestId::of(request.headers()))
}
