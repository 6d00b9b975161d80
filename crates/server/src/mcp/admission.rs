//! Who may send requests: clients with an API key, and no pages of other sites.
//!
//! A page whose host name is made to lead to this machine (DNS rebinding) is of the same origin as this server, for the browser. So an origin has
//! to be this machine by name, or the server's domain; that it equals the requested host proves nothing. Programs send no `Origin`.

use axum::response::IntoResponse;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use sandcove_wire::secret::Secret;
use uuid::Uuid;

use super::reply::refusal;
use crate::Error;
use crate::http::{bearer, team_of};
use crate::proxy::body::Answer;
use crate::state::App;
use crate::state::credentials::API_KEY;

/// A client that may use the tools.
pub(super) struct Caller {
    pub(super) team: Uuid,
    pub(super) key: Secret,
}

/// The client of a request, or the answer to it.
pub(super) async fn admit(app: &App, headers: &HeaderMap) -> Result<Caller, Response<Answer>> {
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    let domain = app.config().domain.as_deref();
    if origin.is_some_and(|origin| !is_own(origin, domain)) {
        return Err(refusal(StatusCode::FORBIDDEN, "the request comes from a page of another site"));
    }
    let error = match identify(app, headers).await {
        Ok(caller) => return Ok(caller),
        Err(error) => error,
    };
    let reason = error.to_string();
    let status = error.into_response().status();
    if status.is_server_error() {
        return Err(refusal(status, "internal server error"));
    }
    let mut answer = refusal(status, &reason);
    if status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    Err(answer)
}

async fn identify(app: &App, headers: &HeaderMap) -> crate::Result<Caller> {
    let key = key(headers).ok_or(Error::NoCredentials("an API key in X-API-Key or as a bearer token"))?;
    let value =
        HeaderValue::from_str(key).map_err(|_| Error::MalformedCredential("Invalid API key format"))?;
    let credential = [(HeaderName::from_static(API_KEY), value)].into_iter().collect();
    let team = team_of(app, &credential).await?;
    Ok(Caller { team: team.id, key: Secret::new(key) })
}

fn key(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    text(API_KEY).or_else(|| bearer(headers)).map(str::trim)
}

/// Whether an origin is this machine or the server's domain. Sandboxes have hosts below both, which are strangers.
fn is_own(origin: &str, domain: Option<&str>) -> bool {
    let Some(host) = origin.split_once("://").map(|(_, host)| without_port(host)) else { return false };
    let domain = domain.map(without_port);
    ["localhost", "127.0.0.1", "[::1]"].contains(&host)
        || domain.is_some_and(|domain| host == domain || host.strip_prefix("api.") == Some(domain))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_and_of_sandboxes_are_strangers() {
        let domain = Some("sandbox.example.com:8443");
        for own in [
            "http://localhost:6274",
            "http://127.0.0.1:3000",
            "http://[::1]",
            "https://sandbox.example.com",
            "https://api.sandbox.example.com:8443",
        ] {
            assert!(is_own(own, domain), "{own}");
        }
        for strange in [
            "https://evil.example",
            "http://3000-iabc.localhost:3000",
            "https://3000-iabc.sandbox.example.com",
            "https://sandbox.example.com.evil.example",
            "http://localhost.evil.example",
            "null",
            "",
        ] {
            assert!(!is_own(strange, domain), "{strange}");
        }
        assert!(!is_own("https://sandbox.example.com", None));
    }

    #[test]
    fn a_key_comes_in_either_header() {
        let headers =
            |name, value| [(name, HeaderValue::from_static(value))].into_iter().collect::<HeaderMap>();
        assert_eq!(key(&headers(HeaderName::from_static(API_KEY), "e2b_1")), Some("e2b_1"));
        assert_eq!(key(&headers(header::AUTHORIZATION, "Bearer e2b_2")), Some("e2b_2"));
        assert_eq!(key(&headers(header::AUTHORIZATION, "Basic e2b_2")), None);
    }
}
