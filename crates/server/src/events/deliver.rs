//! One attempt to deliver an event to a receiver. Clients choose receivers, so the address is not trusted: private and
//! local addresses are refused unless the operator allows them, by their form and by the firewall, redirects are not
//! followed, and only the beginning of an answer is read.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::Full;
use sandcove_host::Host;
use sandcove_isolate::is_public;
use sandcove_wire::api::event::{Attempt, SandboxEvent};
use sandcove_wire::secret::Secret;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::net::{TcpSocket, TcpStream};
use uuid::Uuid;

use crate::clock;
use crate::domain::limits::json_length;
use crate::domain::webhook::Webhook;
use crate::outbound::{self, Tls};

/// Maximum size of the headers that are kept of a request or an answer, as JSON, bytes.
const MAX_HEADERS: usize = 8 << 10;
/// Time in which a receiver has to answer.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The receivers that events may be delivered to.
#[derive(Clone)]
pub(crate) enum Receivers {
    /// Receivers on the internet. The firewall refuses the rest, such as the host's own public addresses.
    Public(Host),
    /// Receivers on the internet, on private networks and on this host.
    Anywhere,
}

/// The reason for which an attempt failed.
struct Failure {
    class: &'static str,
    message: String,
}

/// The signature of a delivery: base64url of SHA-256 over the secret followed by the body.
pub fn signature(secret: &Secret, body: &[u8]) -> String {
    let digest = Sha256::new().chain_update(secret.expose().as_bytes()).chain_update(body).finalize();
    URL_SAFE_NO_PAD.encode(digest)
}

/// Sends `event` to the receiver of `webhook`, and returns the record of the attempt.
pub(super) async fn deliver(
    webhook: &Webhook,
    event: &SandboxEvent,
    receivers: &Receivers,
    tls: &Tls,
) -> Attempt {
    let id = Uuid::new_v4();
    let began = Instant::now();
    let timestamp = clock::now();
    let body = body(event);
    let sent = tokio::time::timeout(DELIVERY_TIMEOUT, send(webhook, id, &body, receivers, tls)).await;
    let (answer, failure) = match sent {
        Ok(Ok(answer)) if answer.status().is_success() => (Some(answer), None),
        Ok(Ok(answer)) => {
            let message = format!("the receiver answered with {}", answer.status().as_u16());
            (Some(answer), Some(Failure { class: "http_error", message }))
        }
        Ok(Err(failure)) => (None, Some(failure)),
        Err(_) => {
            let message = format!("no answer within {} seconds", DELIVERY_TIMEOUT.as_secs());
            (None, Some(Failure { class: "timeout", message }))
        }
    };
    Attempt {
        id: id.to_string(),
        team_id: webhook.team.to_string(),
        webhook_id: webhook.id.to_string(),
        event_id: event.id.clone(),
        sandbox_id: event.sandbox_id.clone(),
        event_type: event.kind.clone(),
        status: if failure.is_none() { "success" } else { "failed" }.to_owned(),
        duration_ms: i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX),
        request_headers: json!(shown(&headers(webhook, id, &Secret::new("")))).to_string(),
        request_body: body,
        request_url: webhook.url.clone(),
        response_body: answer.as_ref().map(|answer| String::from_utf8_lossy(answer.body()).into_owned()),
        response_headers: answer.as_ref().map(|answer| json!(shown(answer.headers())).to_string()),
        response_http_status_code: answer.as_ref().map(|answer| answer.status().as_u16()),
        error_class: failure.as_ref().map(|failure| failure.class.to_owned()),
        error_message: failure.map(|failure| failure.message),
        timestamp,
    }
}

/// The body of a delivery: the event, with member names in snake case.
fn body(event: &SandboxEvent) -> String {
    json!({
        "id": event.id,
        "version": event.version,
        "type": event.kind,
        "timestamp": event.timestamp,
        "event_category": event.event_category,
        "event_label": event.event_label,
        "event_data": event.event_data,
        "sandbox_id": event.sandbox_id,
        "sandbox_execution_id": event.sandbox_execution_id,
        "sandbox_template_id": event.sandbox_template_id,
        "sandbox_build_id": event.sandbox_build_id,
        "sandbox_team_id": event.sandbox_team_id,
    })
    .to_string()
}

fn headers(webhook: &Webhook, delivery: Uuid, signature: &Secret) -> HeaderMap {
    let text = |text: &str| HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""));
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(
        header::USER_AGENT,
        HeaderValue::from_static(concat!("sandcove/", env!("CARGO_PKG_VERSION"))),
    );
    headers.insert("e2b-webhook-id", text(&webhook.id.to_string()));
    headers.insert("e2b-delivery-id", text(&delivery.to_string()));
    headers.insert("e2b-signature-version", HeaderValue::from_static("v1"));
    if !signature.expose().is_empty() {
        headers.insert("e2b-signature", text(signature.expose()));
    }
    headers
}

/// Headers as they are kept; those that do not fit are left out.
fn shown(headers: &HeaderMap) -> BTreeMap<String, String> {
    let mut left = MAX_HEADERS;
    let text = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let fits = |(name, value): &(String, String)| {
        let length = json_length(name) + json_length(value);
        let fits = length <= left;
        left -= if fits { length } else { 0 };
        fits
    };
    headers.iter().map(text).filter(fits).collect()
}

async fn send(
    webhook: &Webhook,
    delivery: Uuid,
    body: &str,
    receivers: &Receivers,
    tls: &Tls,
) -> Result<Response<Bytes>, Failure> {
    let refused = |message: String| Failure { class: "request_error", message };
    let uri: Uri = webhook.url.parse().map_err(|_| refused("the URL is not valid".into()))?;
    let host = uri.host().ok_or_else(|| refused("the URL names no host".into()))?;
    let is_secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = look_up(host, port, receivers).await?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .body(Full::new(Bytes::from(body.to_owned())))
        .map_err(|err| refused(err.to_string()))?;
    let signature = Secret::new(signature(&webhook.secret, body.as_bytes()));
    *request.headers_mut() = headers(webhook, delivery, &signature);
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    let authority = authority.rsplit('@').next().unwrap_or(authority);
    let authority = HeaderValue::from_str(authority).map_err(|err| refused(err.to_string()))?;
    request.headers_mut().insert(header::HOST, authority);
    // The request goes to the address that was checked; the name is not resolved a second time.
    let secure = is_secure.then_some((tls, host));
    let failed = |message: String| Failure { class: "transport_error", message };
    let stream = connect(address, receivers).await.map_err(|err| failed(err.to_string()))?;
    outbound::send(stream, secure, request).await.map_err(|err| failed(err.to_string()))
}

async fn connect(address: SocketAddr, receivers: &Receivers) -> std::io::Result<TcpStream> {
    let socket = match receivers {
        Receivers::Public(host_side) => host_side.guarded_socket(address.is_ipv6()).await?,
        Receivers::Anywhere if address.is_ipv4() => TcpSocket::new_v4()?,
        Receivers::Anywhere => TcpSocket::new_v6()?,
    };
    socket.connect(address).await
}

async fn look_up(host: &str, port: u16, receivers: &Receivers) -> Result<SocketAddr, Failure> {
    let dns = |message: String| Failure { class: "dns_error", message };
    let mut found = tokio::net::lookup_host((host, port)).await.map_err(|err| dns(err.to_string()))?;
    let first = found.next().ok_or_else(|| dns("the host has no address".into()))?;
    let allowed = |address: &SocketAddr| matches!(receivers, Receivers::Anywhere) || is_public(address.ip());
    std::iter::once(first).chain(found).find(allowed).ok_or_else(|| Failure {
        class: "request_error",
        message: "the host is on a private network, which this server does not call".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_the_documented_one() {
        let expected = "6yw2HRBeqVRA4bDPl7MvvlfA6UvRbx39fVqp6rCY2nc";
        assert_eq!(signature(&Secret::new("topsecret"), br#"{"a":1}"#), expected);
    }

    #[test]
    fn headers_are_kept_as_far_as_there_is_room() {
        let mut headers = HeaderMap::new();
        for (name, length) in [("a", 8000), ("b", 4000), ("c", 100)] {
            headers
                .insert(HeaderName::from_static(name), HeaderValue::from_str(&"x".repeat(length)).unwrap());
        }
        assert_eq!(shown(&headers).into_keys().collect::<Vec<_>>(), ["a", "c"]);
    }
}
