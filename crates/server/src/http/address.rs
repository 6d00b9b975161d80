//! The address at which a client has reached the API, for links to give it.

use std::convert::Infallible;
use std::time::Instant;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Request, header};

use crate::state::App;
use crate::{Error, Result};

/// The sender of a request, as far as the connection says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    /// Time at which the client has decided to ask, at the latest. For the first request on a connection, that is when it was opened.
    pub(crate) asked_at: Instant,
    /// Address of the connection.
    pub(crate) peer: std::net::IpAddr,
    /// Part of the server that made this request out of the client's: `dashboard` or `mcp`.
    pub(crate) via: Option<&'static str>,
}

/// The host and path prefix of a request, as they were before the prefix was cut off, and whether it came with TLS.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requested {
    host: Option<Authority>,
    prefix: String,
    is_tls: bool,
}

impl Requested {
    /// Reads a request whose path begins with a prefix of `cut` bytes.
    pub(crate) fn of<B>(request: &Request<B>, cut: usize, is_tls: bool) -> Self {
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()?.parse().ok());
        Self {
            host: request.uri().authority().cloned().or(host),
            prefix: request.uri().path().get(..cut).unwrap_or_default().to_owned(),
            is_tls,
        }
    }
}

impl Requested {
    /// The host that the client has reached.
    fn host(&self, app: &App, headers: &HeaderMap) -> Option<Authority> {
        let forwarded = first(headers, "x-forwarded-host").and_then(|host| host.parse().ok());
        let local = || app.local_addr().and_then(|address| address.to_string().parse().ok());
        forwarded.or_else(|| self.host.clone()).or_else(local)
    }

    /// Whether the client speaks TLS, with this server or with a proxy before it.
    pub(crate) fn is_secure(&self, app: &App, headers: &HeaderMap) -> bool {
        match first(headers, "x-forwarded-proto") {
            Some(scheme) => scheme.eq_ignore_ascii_case("https"),
            None if self.is_tls => true,
            None => {
                let port = app.local_addr().map(|address| address.port());
                self.host(app, headers).is_some_and(|host| is_behind_tls(&host, port))
            }
        }
    }
}

/// Time at which the client has decided to ask, at the latest.
pub(super) struct AskedAt(pub(super) Instant);

impl<S: Sync> FromRequestParts<S> for AskedAt {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let origin = parts.extensions.get::<Origin>();
        Ok(Self(origin.map_or_else(Instant::now, |origin| origin.asked_at)))
    }
}

/// The URL of the API, without a slash at its end.
pub(super) struct ApiUrl(pub(super) String);

impl FromRequestParts<App> for ApiUrl {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let requested = parts.extensions.get::<Requested>().cloned().unwrap_or_default();
        let host = requested
            .host(app, &parts.headers)
            .ok_or_else(|| Error::Refused("the request does not say which host it is for".into()))?;
        let scheme = if requested.is_secure(app, &parts.headers) { "https" } else { "http" };
        Ok(Self(format!("{scheme}://{host}{}", requested.prefix)))
    }
}

/// Whether a client whose connection has no TLS has reached `host` with it all the same: without a port in it, the client has
/// not reached the port of this server but a proxy, and proxies that other machines reach speak TLS.
fn is_behind_tls(host: &Authority, own_port: Option<u16>) -> bool {
    let name = host.host();
    let is_local = name == "localhost" || name.ends_with(".localhost");
    let is_address = name.starts_with('[') || name.parse::<std::net::IpAddr>().is_ok();
    host.port().is_none() && own_port != Some(80) && !is_local && !is_address
}

/// The first of the values in a header that every proxy appends to.
fn first<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()?.split(',').next().map(str::trim).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_a_port_is_that_of_a_proxy_with_tls() {
        let behind = |host: &str, port| is_behind_tls(&host.parse().unwrap(), Some(port));
        assert!(behind("api.example.com", 3000));
        assert!(!behind("api.example.com", 80));
        for direct in ["api.example.com:3000", "localhost", "api.localhost", "192.0.2.1", "[::1]"] {
            assert!(!behind(direct, 3000), "{direct}");
        }
    }
}
