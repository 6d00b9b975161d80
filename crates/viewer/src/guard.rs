//! Deciding which requests the server answers.
//!
//! On a loopback address, any page that is open in a browser could send requests. A page of another origin may do so directly, or
//! resolve a name of its own to 127.0.0.1; so the `Host` must be a name of this machine, and requests that change something must
//! come from the page of this server. On other addresses a token decides.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use crate::error::Refused;

const COOKIE: &str = "sandcove_view";

/// The secret that clients need; [`as_str`](Self::as_str) is for printing it to the user who started the server.
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Makes a random token of 128 bits.
    pub(crate) fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()))
    }

    /// Returns the secret.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn is(&self, given: &str) -> bool {
        given.as_bytes().ct_eq(self.0.as_bytes()).into()
    }
}

/// The content security policy: only scripts of this server run, and none may make HTML of a text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Refuses requests that are not allowed, and adds security headers to every response.
pub(crate) async fn guard(State(token): State<Arc<Option<Token>>>, request: Request, next: Next) -> Response {
    let mut response = match admit(token.as_ref().as_ref(), &request) {
        Ok(Admitted::Yes) => next.run(request).await,
        Ok(Admitted::Remember(location, cookie)) => {
            (StatusCode::SEE_OTHER, [(header::LOCATION, location), (header::SET_COOKIE, cookie)])
                .into_response()
        }
        Err(refused) => refused.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

enum Admitted {
    Yes,
    /// The token was in the address: it moves to a cookie, and out of the address.
    Remember(String, String),
}

fn admit(token: Option<&Token>, request: &Request) -> Result<Admitted, Refused> {
    let headers = request.headers();
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text("host")
        .or_else(|| request.uri().authority().map(|authority| authority.as_str()))
        .unwrap_or_default();
    if token.is_none() && !is_this_machine(host) {
        return Err(Refused::Host(host.to_owned()));
    }
    let elsewhere = text("sec-fetch-site").is_some_and(|site| matches!(site, "cross-site" | "same-site"));
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let foreign =
        text("origin").is_some_and(|origin| origin.split_once("://").map(|(_, rest)| rest) != Some(host));
    // Links from elsewhere may open the page, and nothing but the page.
    if (foreign || elsewhere) && (!reads || request.uri().path().starts_with("/api/")) {
        return Err(Refused::Origin);
    }
    let Some(token) = token else { return Ok(Admitted::Yes) };
    if request.uri().path() == "/health" || given(headers).any(|given| token.is(given)) {
        return Ok(Admitted::Yes);
    }
    let pairs = || form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
    if !pairs().any(|(name, value)| name == "token" && token.is(&value)) {
        return Err(Refused::Token);
    }
    let rest = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs().filter(|(name, _)| name != "token"))
        .finish();
    // Two slashes at its start would make the path another host.
    let path = format!("/{}", request.uri().path().trim_start_matches('/'));
    let location = if rest.is_empty() { path } else { format!("{path}?{rest}") };
    let cookie = format!("{COOKIE}={}; HttpOnly; SameSite=Strict; Path=/", token.as_str());
    Ok(Admitted::Remember(location, cookie))
}

/// Secrets that a request brings.
fn given(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookies =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    bearer
        .and_then(|value| value.strip_prefix("Bearer "))
        .into_iter()
        .chain(cookies.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value))
}

/// Whether a `Host` is a name that nobody else can point here. The port may differ: it may have been forwarded.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_told_from_others() {
        for host in [
            "localhost",
            "localhost:15500",
            "LOCALHOST:1",
            "127.0.0.1:15500",
            "127.1.2.3",
            "[::1]:15500",
            "[::1]",
        ] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:15500",
            "localhost.evil.example",
            "10.0.0.1:15500",
            "0.0.0.0",
            "[::2]",
        ] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
