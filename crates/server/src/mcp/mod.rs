//! The Model Context Protocol over HTTP (`/mcp`): agents use sandboxes as tools without a program of ours on their machine.
//!
//! What the tools do is in the crate `sandcove-mcp`, as for `sandcove mcp`. Here are the requests of the protocol's *streamable HTTP*: who may
//! send them ([`admission`]), to which session they belong, and in which form they are answered ([`reply`]). Tools are clients of the API, over
//! connections within this process.

mod admission;
mod reply;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::IntoResponse;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use sandcove_client::Client;
use sandcove_mcp::{Message, Session, Sessions};
use tokio::io::DuplexStream;
use uuid::Uuid;

use crate::http::show;
use crate::memory::{is_too_long, whole};
use crate::proxy::body::Answer;
use crate::sandboxes::Upload;
use crate::state::{Allowance, App};
use crate::{Error, random};
use admission::Caller;
use reply::{Accepted, refusal};

/// Path of the protocol.
pub(crate) const PATH: &str = "/mcp";
/// Header with the name of a session.
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// Header with the version of the protocol that client and server have agreed on.
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Header with the last event that a client has seen.
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// Maximum size of a message, bytes.
const MAX_BODY: usize = 16 << 20;
/// Time in which a client has to send a message.
const BODY_TIMEOUT: Duration = Duration::from_secs(70);

/// The sessions of a server's agents; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mcp {
    sessions: Arc<Sessions<Uuid>>,
}

/// A request that is answered without a result: its status, and why.
type Refusal = (StatusCode, &'static str);

impl Mcp {
    /// Answers a request to `/mcp`. `connect` opens a connection to the API within this process.
    pub(crate) async fn answer(
        &self,
        app: &App,
        request: Request<Upload>,
        is_secure: bool,
        connect: impl Fn() -> DuplexStream + Send + Sync + 'static,
    ) -> Response<Answer> {
        let began = Instant::now();
        let method = request.method().clone();
        let answer = match admission::admit(app, request.headers()).await {
            Ok(caller) => match method {
                Method::POST => self.post(app, request, caller, is_secure, connect).await,
                Method::GET => self.get(request.headers(), &caller),
                Method::DELETE => self.delete(request.headers(), &caller),
                _ => {
                    let mut answer = refused((StatusCode::METHOD_NOT_ALLOWED, "use POST, GET or DELETE"));
                    let methods = HeaderValue::from_static("GET, POST, DELETE");
                    answer.headers_mut().insert(header::ALLOW, methods);
                    answer
                }
            },
            Err(answer) => answer,
        };
        let known = [Method::POST, Method::GET, Method::DELETE].contains(&method);
        let label = if known { method.as_str() } else { "other" };
        app.telemetry().answered(label, PATH, answer.status().as_u16(), began.elapsed());
        answer
    }

    /// Ends streams that wait for nothing, and begins no more requests. Those in progress go on.
    pub(crate) fn close(&self) {
        self.sessions.close();
    }

    async fn post(
        &self,
        app: &App,
        request: Request<Upload>,
        caller: Caller,
        is_secure: bool,
        connect: impl Fn() -> DuplexStream + Send + Sync + 'static,
    ) -> Response<Answer> {
        let (parts, body) = request.into_parts();
        let message = match read(&parts, body).await {
            Ok(message) => message,
            Err(answer) => return answer,
        };
        let accepted = match Accepted::of(&parts.headers) {
            Some(accepted) => accepted,
            None => {
                return refused((StatusCode::NOT_ACCEPTABLE, "accept application/json or text/event-stream"));
            }
        };
        // Only its scheme is used, in links; the connections are within this process.
        let url = if is_secure { "https://localhost" } else { "http://localhost" };
        let Ok(client) = Client::here(url, &caller.key, connect) else {
            return refused((StatusCode::UNAUTHORIZED, "the API key is malformed"));
        };
        if message.method.as_deref() == Some("initialize") && message.id.is_some() {
            // Sessions take memory. What is sent in them is limited by session, and as the calls of the API that tools send.
            let allowance = app.limiter().count(caller.team, (Method::POST, PATH.to_owned()));
            if let Some(allowance) = allowance.filter(|allowance| allowance.is_exceeded) {
                return exceeded(&allowance);
            }
            let id = random::token();
            let (progress, _) = tokio::sync::mpsc::unbounded_channel();
            let Some(result) = sandcove_mcp::answer(&client, message, progress).await else {
                return refused((StatusCode::BAD_REQUEST, "initialize needs an id"));
            };
            self.sessions.begin(id.expose().to_owned(), caller.team);
            let mut answer = accepted.whole(&result);
            if let Some(allowance) = allowance {
                show(&allowance, answer.headers_mut());
            }
            if let Ok(id) = HeaderValue::from_str(id.expose()) {
                answer.headers_mut().insert(SESSION, id);
            }
            return answer;
        }
        let session = match self.session(&parts.headers, &caller) {
            Ok(session) => session,
            Err(refusal) => return refused(refusal),
        };
        if let Some(id) = message.cancelled() {
            session.cancel(id);
        }
        let is_request = message.method.is_some() && message.id.as_ref().is_some_and(|id| !id.is_null());
        if !is_request {
            return StatusCode::ACCEPTED.into_response().map(Answer::Api);
        }
        let (id, is_call) = (message.id.clone(), message.method.as_deref() == Some("tools/call"));
        match session.answer(client, message) {
            Ok(reader) => accepted.answer(reader, is_call, &id.unwrap_or_default()).await,
            Err(sandcove_mcp::Busy) => {
                refused((StatusCode::TOO_MANY_REQUESTS, "the session has too many requests in progress"))
            }
        }
    }

    fn get(&self, headers: &HeaderMap, caller: &Caller) -> Response<Answer> {
        if !Accepted::of(headers).is_some_and(|accepted| accepted.events) {
            return refused((StatusCode::NOT_ACCEPTABLE, "accept text/event-stream"));
        }
        let session = match self.session(headers, caller) {
            Ok(session) => session,
            Err(refusal) => return refused(refusal),
        };
        match headers.get(LAST_EVENT) {
            None => reply::events(session.listen()),
            Some(event) => match event.to_str().ok().and_then(|event| session.resume(event)) {
                Some(reader) => reply::events(reader),
                None => refused((StatusCode::BAD_REQUEST, "nothing follows that event")),
            },
        }
    }

    fn delete(&self, headers: &HeaderMap, caller: &Caller) -> Response<Answer> {
        match name(headers) {
            Some(id) if self.sessions.end(id, &caller.team) => {
                StatusCode::NO_CONTENT.into_response().map(Answer::Api)
            }
            Some(_) => refused((StatusCode::NOT_FOUND, "unknown session: initialize a new one")),
            None => refused((StatusCode::BAD_REQUEST, "the header Mcp-Session-Id is missing")),
        }
    }

    /// The session of a request. A session of another team is answered like one that does not exist.
    fn session(&self, headers: &HeaderMap, caller: &Caller) -> Result<Arc<Session<Uuid>>, Refusal> {
        let id = name(headers).ok_or((StatusCode::BAD_REQUEST, "the header Mcp-Session-Id is missing"))?;
        let version = headers.get(VERSION).map(HeaderValue::to_str);
        if version.is_some_and(|version| !version.is_ok_and(sandcove_mcp::is_version)) {
            return Err((StatusCode::BAD_REQUEST, "unsupported MCP-Protocol-Version"));
        }
        let session = self.sessions.find(id, &caller.team);
        session.ok_or((StatusCode::NOT_FOUND, "unknown session: initialize a new one"))
    }
}

fn name(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION)?.to_str().ok()
}

/// Reads a message. Several at once are refused, as the protocol does since 2025-06-18.
async fn read(parts: &Parts, body: Upload) -> Result<Message, Response<Answer>> {
    let kind =
        parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(refused((StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json")));
    }
    let body = tokio::time::timeout(BODY_TIMEOUT, whole(body, MAX_BODY, parts.extensions.get())).await;
    let body = match body {
        Ok(Ok(body)) => body,
        Ok(Err(error)) if is_too_long(&error) => {
            return Err(refused((StatusCode::PAYLOAD_TOO_LARGE, "a message may have 16 MiB")));
        }
        Ok(Err(_)) => return Err(refused((StatusCode::BAD_REQUEST, "the body broke off"))),
        Err(_) => return Err(refused((StatusCode::REQUEST_TIMEOUT, "the body did not come in time"))),
    };
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(refused((StatusCode::BAD_REQUEST, "send one message at a time, not a batch")));
    }
    Message::parse(&body).map_err(|failure| reply::json(StatusCode::BAD_REQUEST, &failure))
}

/// The answer to a client that begins more sessions than its rate limit allows.
fn exceeded(allowance: &Allowance) -> Response<Answer> {
    let error = Error::TooManyRequests(allowance.reset);
    let mut answer = refusal(StatusCode::TOO_MANY_REQUESTS, &error.to_string());
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(allowance.reset));
    show(allowance, answer.headers_mut());
    answer
}

fn refused((status, reason): Refusal) -> Response<Answer> {
    refusal(status, reason)
}
