//! Forwards a request to a sandbox, and its answer to the client, frame by frame.

use std::time::Duration;

use axum::response::IntoResponse;
use http::header::{self, HeaderName};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::{Body as _, Incoming};
use sandcove_wire::boot::AGENT_PORT;
use sandcove_wire::control::control_route;
use tokio::time::sleep;

use super::access::{Authorized, RequestHead};
use super::body::{Answer, SandboxStream};
use super::host_route::Target;
use super::{Refusal, error_page, legacy, refused, tls, upgrade};
use crate::memory::Memory;
use crate::sandboxes::{Batched, Expected, LiveSession, Protocol, SandboxConnection, Upload};
use crate::state::{App, credentials};

/// Pauses between attempts to reach a port that is not open; a service may be about to open it.
const DIAL_AGAIN: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(300),
    Duration::from_millis(400),
];
/// Headers that concern one connection only; `Connection` may name more.
const HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The protocol that is spoken to a service.
#[derive(Clone, Copy)]
struct Spoken {
    protocol: Protocol,
    /// Whether the service expects TLS below the protocol.
    speaks_tls: bool,
}

/// Answers a request for a sandbox. The first `cut` bytes of its path are the operator's prefix.
pub(crate) async fn serve(
    app: &App,
    request: Request<Upload>,
    target: Target,
    cut: usize,
) -> Response<Answer> {
    let format = error_page::format_for(request.headers());
    let preflight = request.method() == Method::OPTIONS && target == Target::SomeAgent;
    match attempt(app, request, target, cut).await {
        Ok(answer) => answer,
        // A browser's preflight carries neither token nor signature, so its sandbox is unknown. Every agent would give the
        // same answer.
        Err(Refusal::NotFound(_)) if preflight => agent_preflight().map(Answer::Api),
        Err(refusal) => {
            tracing::debug!(refusal = %refusal, "traffic refused");
            refused(&refusal, format).map(Answer::Api)
        }
    }
}

async fn attempt(
    app: &App,
    mut request: Request<Upload>,
    target: Target,
    cut: usize,
) -> Result<Response<Answer>, Refusal> {
    let host = host(&request);
    let uri = local_uri(request.uri(), cut);
    let head = RequestHead {
        method: request.method(),
        path: uri.path(),
        query: uri.query(),
        headers: request.headers(),
    };
    let (id, port) = match target {
        Target::Sandbox { id, port } => (id, port),
        Target::SomeAgent => (head.find(app).ok_or_else(|| Refusal::NotFound(String::new()))?, AGENT_PORT),
        Target::Api => return Err(Refusal::BadAddress("not a sandbox address")),
    };
    if port == AGENT_PORT && control_route(uri.path()).is_some() {
        return Err(Refusal::ControlRoute(uri.path().to_owned()));
    }
    if request.method() == Method::CONNECT {
        return Err(Refusal::BadAddress("CONNECT is not supported"));
    }
    let Authorized { live, view } = head.authorize(app, &id, port).await?;
    if let Some(memory) = request.extensions().get::<Memory>() {
        memory.visits(view.details.team);
    }
    let ended = || match app.is_draining() {
        true => Refusal::Stopping(id.to_string()),
        false => Refusal::NotFound(id.to_string()),
    };
    let permit =
        live.budget.take(port).map_err(|limit| Refusal::TooManyConnections(id.to_string(), limit))?;
    if let Some(service) = legacy::service(app, &head, &view.details, &live, port).await? {
        *request.uri_mut() = uri;
        let answer = legacy::serve(service, request, live.clone(), permit);
        return live.ended.run_until_cancelled(answer).await.ok_or_else(ended);
    }
    credentials::withhold(app, request.headers_mut()).await;
    let mask = if port == AGENT_PORT { None } else { view.settings.network.masked_host(port) };
    let upgrade = upgrade::wanted(request.headers());
    let client = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    let protocol = protocol_for(&request);
    prepare(&mut request, uri, host, mask, upgrade);
    if protocol == Protocol::Http2 {
        address_in_full(&mut request);
    }
    let sent = request.body().sent();
    let speaks_tls = view.settings.network.speaks_tls(port);
    let exchange = exchange(request, &live, id.as_str(), port, Spoken { protocol, speaks_tls });
    let (mut answer, connection) = live.ended.run_until_cancelled(exchange).await.ok_or_else(ended)??;
    if port == AGENT_PORT {
        live.hear_agent();
    }
    let upgraded =
        upgrade::wanted(answer.headers()).filter(|_| answer.status() == StatusCode::SWITCHING_PROTOCOLS);
    if let (Some(client), Some(protocol)) = (client, upgraded) {
        upgrade::splice(client, hyper::upgrade::on(&mut answer), live, permit);
        let (mut parts, _) = answer.into_parts();
        drop_hop_by_hop(&mut parts.headers);
        announce_upgrade(&mut parts.headers, protocol);
        return Ok(Response::from_parts(parts, Answer::Api(axum::body::Body::empty())));
    }
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Refusal::UnaskedUpgrade(id.to_string(), port));
    }
    let (mut parts, body) = answer.into_parts();
    if parts.headers.contains_key(header::TRANSFER_ENCODING) {
        // It overrides a length, which some services copy from what they forward.
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    drop_hop_by_hop(&mut parts.headers);
    parts.version = Version::default();
    let stream = SandboxStream::new(body, live, port, (connection, permit), sent);
    Ok(Response::from_parts(parts, Answer::Sandbox(stream)))
}

/// Sends the request over an idle connection or a new one, and waits for the head of the answer.
async fn exchange(
    mut request: Request<Upload>,
    live: &LiveSession,
    id: &str,
    port: u16,
    spoken: Spoken,
) -> Result<(Response<Incoming>, SandboxConnection), Refusal> {
    let closed = || Refusal::PortClosed(id.to_owned(), port);
    loop {
        let (mut connection, reused) = match live.pool.take(port, spoken.protocol) {
            Some(connection) => (connection, true),
            None => (dial(live, port, spoken).await.map_err(|_| closed())?, false),
        };
        let copy = if reused { copy_if_safe(&request) } else { None };
        match connection.send(request).await {
            Ok(answer) => return Ok((answer, connection)),
            // The service closed an idle connection just now. If nothing was sent, or may be sent twice and was not answered, it is sent again.
            Err(mut failed) => match failed.take_message().or(copy.filter(|_| !connection.was_answered())) {
                Some(again) if reused => request = again,
                _ => {
                    tracing::debug!(sandbox_id = id, port, error = %failed.error(), "no answer from a sandbox");
                    return Err(closed());
                }
            },
        }
    }
}

/// A copy of a request that changes nothing at the service, if it has no body.
fn copy_if_safe(request: &Request<Upload>) -> Option<Request<Upload>> {
    if !request.method().is_safe() || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(Upload::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Opens a connection to a port.
async fn dial(
    live: &LiveSession,
    port: u16,
    Spoken { protocol, speaks_tls }: Spoken,
) -> std::io::Result<SandboxConnection> {
    let retries: &[Duration] = if port == AGENT_PORT { &[] } else { &DIAL_AGAIN };
    let mut pauses = retries.iter();
    let stream = loop {
        match (live.handle.0.connect(port).await, pauses.next()) {
            (Ok(stream), _) => break stream,
            (Err(err), Some(pause)) if err.kind() == std::io::ErrorKind::ConnectionRefused => {
                sleep(*pause).await;
            }
            (Err(err), _) => return Err(err),
        }
    };
    stream.set_nodelay(true)?;
    let expected = Expected::default();
    let stream = Batched::new(stream, expected.clone());
    match speaks_tls {
        true => SandboxConnection::handshake(tls::wrap(stream, protocol).await?, protocol, expected).await,
        false => SandboxConnection::handshake(stream, protocol, expected).await,
    }
}

/// The protocol to speak to the service: HTTP/1.1, which all of them do, but HTTP/2 for gRPC, which has no other.
fn protocol_for(request: &Request<Upload>) -> Protocol {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let rest = kind.and_then(|kind| kind.strip_prefix("application/grpc"));
    // `application/grpc-web` is made for HTTP/1.1.
    let is_grpc = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']));
    match request.version() {
        Version::HTTP_2 if is_grpc => Protocol::Http2,
        _ => Protocol::Http1,
    }
}

/// Gives a request the form of HTTP/2, in which the host is part of the address.
fn address_in_full(request: &mut Request<Upload>) {
    let host = request.headers_mut().remove(header::HOST);
    let host = host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    if let Ok(uri) = Uri::builder().scheme("http").authority(host).path_and_query(path).build() {
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
    }
}

/// Turns a client's request into one of the proxy to the service behind the port.
fn prepare(
    request: &mut Request<Upload>,
    uri: Uri,
    host: Option<HeaderValue>,
    mask: Option<String>,
    upgrade: Option<HeaderValue>,
) {
    let is_framed = request.version() == Version::HTTP_2;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    let takes_trailers = takes_trailers(headers);
    drop_hop_by_hop(headers);
    if takes_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if is_framed {
        join_cookies(headers);
    }
    if let Some(protocol) = upgrade {
        announce_upgrade(headers, protocol);
    }
    let masked = mask.and_then(|mask| HeaderValue::from_str(&mask).ok());
    if let (Some(_), Some(original)) = (&masked, &host) {
        headers.insert("x-forwarded-host", original.clone());
    }
    let fallback = HeaderValue::from_static("localhost");
    headers.insert(header::HOST, masked.or(host).unwrap_or(fallback));
}

/// The host that the client named; HTTP/2 has it in the address.
fn host(request: &Request<Upload>) -> Option<HeaderValue> {
    let from_header = || request.headers().get(header::HOST).cloned();
    let authority = request.uri().authority();
    authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok()).or_else(from_header)
}

/// Path and query, without the operator's prefix.
pub(crate) fn local_uri(uri: &Uri, cut: usize) -> Uri {
    let whole = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let rest = whole.get(cut..).unwrap_or("/");
    let text = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    PathAndQuery::try_from(text).map_or_else(|_| Uri::from_static("/"), Uri::from)
}

fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let keep_alive = [HeaderName::from_static("keep-alive"), HeaderName::from_static("proxy-connection")];
    for name in named.iter().chain(&HOP_BY_HOP).chain(&keep_alive) {
        headers.remove(name);
    }
}

/// Whether the client reads what follows a body.
fn takes_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::TE).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case("trailers"))
}

/// Puts all cookies into one header: clients of HTTP/2 send them one by one, and programs look at the first only.
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, joined);
    }
}

fn announce_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

fn agent_preflight() -> Response<axum::body::Body> {
    let any = HeaderValue::from_static("*");
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, any.clone()),
        (
            header::ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE, HEAD"),
        ),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, any),
        (header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200")),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}
