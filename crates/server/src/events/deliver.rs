//! One attempt to deliver an event to a receiver. Clients choose receivers, so the address is not trusted: private and
//! local addresses are refused unless the operator allows them, redirects are not followed, and only the beginning of an
//! answer is read.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::Full;
use sandcove_wire::api::event::{Attempt, SandboxEvent};
use sandcove_wire::secret::Secret;
use serde_json::json;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::clock;
use crate::domain::webhook::Webhook;
use crate::outbound::{self, Tls};

/// Time in which a receiver has to answer.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The receivers that events may be delivered to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receivers {
    /// Receivers on the internet.
    Public,
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
    receivers: Receivers,
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

fn shown(headers: &HeaderMap) -> BTreeMap<String, String> {
    headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect()
}

async fn send(
    webhook: &Webhook,
    delivery: Uuid,
    body: &str,
    receivers: Receivers,
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
    outbound::send(address, secure, request)
        .await
        .map_err(|message| Failure { class: "transport_error", message })
}

async fn look_up(host: &str, port: u16, receivers: Receivers) -> Result<SocketAddr, Failure> {
    let dns = |message: String| Failure { class: "dns_error", message };
    let mut found = tokio::net::lookup_host((host, port)).await.map_err(|err| dns(err.to_string()))?;
    let first = found.next().ok_or_else(|| dns("the host has no address".into()))?;
    let allowed = |address: &SocketAddr| receivers == Receivers::Anywhere || is_public(address.ip());
    std::iter::once(first).chain(found).find(allowed).ok_or_else(|| Failure {
        class: "request_error",
        message: "the host is on a private network, which this server does not call".into(),
    })
}

/// Whether an address is public, as far as its form shows.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            let is_shared = a == 100 && (64..128).contains(&b);
            let is_test = a == 198 && (18..20).contains(&b);
            let is_protocol = a == 192 && b == 0 && v4.octets()[2] == 0;
            !(v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_documentation()
                || v4.is_multicast()
                || a == 0
                || a >= 240
                || is_shared
                || is_test
                || is_protocol)
        }
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_public(v4.into()),
            None => is_public_v6(v6),
        },
    }
}

/// Whether an address is global unicast, but no tunnel of an IPv4 address (6to4, Teredo) and not for documentation.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let is_global = segments[0] & 0xe000 == 0x2000;
    let is_tunnel = segments[0] == 0x2002 || (segments[0] == 0x2001 && segments[1] < 0x0200);
    let is_documentation = segments[0] == 0x2001 && segments[1] == 0x0db8;
    is_global && !is_tunnel && !is_documentation
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
    fn only_addresses_of_the_internet_are_public() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.0.1",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "::ffff:127.0.0.1",
            "2002:7f00:1::",
            "2001:0::1",
            "ff02::1",
            "64:ff9b::7f00:1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in ["1.1.1.1", "100.128.0.1", "2606:4700:4700::1111", "::ffff:1.1.1.1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }
}
