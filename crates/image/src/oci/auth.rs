//! Authentication at registries: basic, and the bearer tokens of the distribution specification.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue};
use sandcove_wire::secret::Secret;
use serde::Deserialize;
use url::Url;

use super::network::{Network, NetworkError, read};

/// Maximum size of the answer of a token server, bytes.
const MAX_TOKEN: u64 = 1 << 20;

/// User name and password, as a registry gets them.
#[derive(Debug, Clone)]
pub(super) struct Login {
    pub username: String,
    pub password: Secret,
}

impl Login {
    fn header(&self) -> Option<HeaderValue> {
        let pair = format!("{}:{}", self.username, self.password.expose());
        sensitive(format!("Basic {}", STANDARD.encode(pair)))
    }
}

/// Reason why a registry lets nobody in.
#[derive(Debug)]
pub(super) enum AuthError {
    /// The credentials are missing or wrong.
    Denied,
    /// The token server cannot be reached or answers nonsense.
    Network(NetworkError),
}

/// The kind of authentication that a registry asks for.
#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String> },
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// Returns the authorization that the challenge in `headers` asks for, to pull from `repository`.
pub(super) async fn answer(
    network: &Network,
    headers: &HeaderMap,
    repository: &str,
    login: Option<&Login>,
) -> Result<HeaderValue, AuthError> {
    let challenges = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    match challenges.filter_map(parse).next() {
        Some(Challenge::Basic) => login.and_then(Login::header).ok_or(AuthError::Denied),
        Some(Challenge::Bearer { realm, service }) => {
            bearer(network, &realm, service.as_deref(), repository, login).await
        }
        None => Err(AuthError::Denied),
    }
}

async fn bearer(
    network: &Network,
    realm: &str,
    service: Option<&str>,
    repository: &str,
    login: Option<&Login>,
) -> Result<HeaderValue, AuthError> {
    let wrong = |what: &str| AuthError::Network(NetworkError::Failed(format!("the token server {what}")));
    let mut url = Url::parse(realm).map_err(|_| wrong("has an invalid URL"))?;
    // The scope is that of this image, whatever the registry asks for: a token for more would be of use only to the registry.
    url.query_pairs_mut().append_pair("scope", &format!("repository:{repository}:pull"));
    if let Some(service) = service {
        url.query_pairs_mut().append_pair("service", service);
    }
    let authorization = login.and_then(Login::header);
    let response =
        network.get(&url, &HeaderMap::new(), authorization.as_ref()).await.map_err(AuthError::Network)?;
    match response.status().as_u16() {
        200 => {}
        401 | 403 => return Err(AuthError::Denied),
        status => return Err(wrong(&format!("returned status code {status}"))),
    }
    let body = read(response, MAX_TOKEN).await.map_err(|why| wrong(&format!("failed: {why}")))?;
    let token: Token = serde_json::from_slice(&body).map_err(|_| wrong("returned no token"))?;
    let text = token.token.or(token.access_token).filter(|text| !text.is_empty());
    text.and_then(|text| sensitive(format!("Bearer {text}"))).ok_or_else(|| wrong("returned no token"))
}

fn sensitive(text: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Parses a challenge: a scheme, then `name="value"` pairs. Unknown schemes are ignored.
fn parse(header: &str) -> Option<Challenge> {
    let header = header.trim();
    let (scheme, rest) = header.split_once(' ').unwrap_or((header, ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service) = (None, None);
    let mut rest = rest.trim_start();
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_once(',').unwrap_or((after, "")),
        };
        match name.trim().to_ascii_lowercase().as_str() {
            "realm" => realm = Some(value.to_owned()),
            "service" => service = Some(value.to_owned()),
            _ => {}
        }
        rest = after.trim_start_matches([',', ' ']);
    }
    Some(Challenge::Bearer { realm: realm?, service })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.into(), service: service.map(Into::into) })
        };
        for (header, expected) in [
            ("Basic realm=\"x\"", Some(Challenge::Basic)),
            ("basic", Some(Challenge::Basic)),
            (
                "Bearer realm=\"https://auth.example/token\",service=\"r.example\",scope=\"repository:a/b:pull,push\"",
                bearer("https://auth.example/token", Some("r.example")),
            ),
            ("bearer scope=\"a=b, c\", realm=\"https://a/\"", bearer("https://a/", None)),
            ("Bearer realm=https://a/t, service=s", bearer("https://a/t", Some("s"))),
            ("Bearer service=\"s\"", None),
            ("Bearer realm=\"https://a", None),
            ("Negotiate", None),
            ("", None),
        ] {
            assert_eq!(parse(header), expected, "{header}");
        }
    }

    #[test]
    fn a_login_is_hidden_in_debug() {
        let login = Login { username: "_json_key".into(), password: Secret::new("hunter2") };
        assert!(!format!("{login:?} {:?}", login.header()).contains("hunter2"));
        assert!(!format!("{:?}", login.header()).contains(&STANDARD.encode("_json_key:hunter2")));
    }
}
