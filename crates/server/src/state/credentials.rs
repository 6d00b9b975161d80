//! Headers that carry credentials of this server.

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderValue};
use sandcove_wire::secret::Secret;

use super::App;

/// Header of an API key.
pub(crate) const API_KEY: &str = "x-api-key";
/// Header of the admin token.
pub(crate) const ADMIN_TOKEN: &str = "x-admin-token";
/// Cookie of a session of the dashboard, without TLS.
pub(crate) const SESSION_COOKIE: &str = "sandcove_dashboard";
/// Cookie of a session of the dashboard, with TLS.
pub(crate) const SECURE_SESSION_COOKIE: &str = "__Host-sandcove_dashboard";

/// Removes credentials of this server from a request that goes on to a sandbox, whose owner could read them. Values that
/// are no credentials here belong to the service in the sandbox, and stay.
pub(crate) async fn withhold(app: &App, headers: &mut HeaderMap) {
    for name in [API_KEY, AUTHORIZATION.as_str(), ADMIN_TOKEN] {
        let mut ours = false;
        for value in headers.get_all(name).iter().filter_map(|value| value.to_str().ok()) {
            let credential =
                if name == AUTHORIZATION.as_str() { value.strip_prefix("Bearer ") } else { Some(value) };
            if let Some(credential) = credential {
                ours = ours || is_credential(app, credential.trim()).await;
            }
        }
        if ours {
            headers.remove(name);
        }
    }
    withhold_session(headers);
}

/// Removes cookies of the dashboard's sessions, and leaves those of services.
fn withhold_session(headers: &mut HeaderMap) {
    let has_session = |value: &HeaderValue| contains(value.as_bytes(), SESSION_COOKIE.as_bytes());
    if !headers.get_all(COOKIE).iter().any(has_session) {
        return;
    }
    let kept: Vec<String> = headers
        .get_all(COOKIE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b';'))
        .filter(|cookie| !contains(cookie, SESSION_COOKIE.as_bytes()))
        .map(|cookie| String::from_utf8_lossy(cookie).trim().to_owned())
        .collect();
    headers.remove(COOKIE);
    if !kept.is_empty()
        && let Ok(value) = HeaderValue::from_str(&kept.join("; "))
    {
        headers.insert(COOKIE, value);
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

async fn is_credential(app: &App, text: &str) -> bool {
    let config = app.config();
    let is = |secret: &Option<Secret>| secret.as_ref().is_some_and(|secret| secret.matches(text));
    // When the store fails, the value might be a credential, and is removed.
    is(&config.access_token)
        || is(&config.admin_token)
        || app.store().is_credential(text).await.unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_gets_no_session_cookie() {
        for (given, kept) in [
            ("a=1; sandcove_dashboard=5a; b=2", Some("a=1; b=2")),
            ("__Host-sandcove_dashboard=5a", None),
            ("a=1; b=2", Some("a=1; b=2")),
        ] {
            let mut headers: HeaderMap = [(COOKIE, HeaderValue::from_static(given))].into_iter().collect();
            withhold_session(&mut headers);
            assert_eq!(headers.get(COOKIE).map(|value| value.to_str().unwrap()), kept, "{given}");
        }
    }
}
