//! Passwords for registries of Amazon Web Services, from an access key. The request is signed with Signature Version 4.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, Mac};
use http::{HeaderMap, HeaderValue, Method};
use sandcove_wire::secret::Secret;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::auth::{AuthError, Login};
use super::network::{Network, NetworkError, host_of, read};

const TARGET: &str = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken";
const CONTENT_TYPE: &str = "application/x-amz-json-1.1";
const MAX_ANSWER: u64 = 1 << 20;

/// An access key.
pub(super) struct AccessKey<'a> {
    pub id: &'a str,
    pub secret: &'a Secret,
    pub region: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    authorization_data: Vec<Data>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    authorization_token: String,
}

/// Whether the text can be the name of a region, which becomes part of a host name.
pub(super) fn is_region(region: &str) -> bool {
    (1..=32).contains(&region.len())
        && region.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Gets the password of the account's registries in the key's region, which is valid for 12 hours.
pub(super) async fn login(network: &Network, key: &AccessKey<'_>) -> Result<Login, AuthError> {
    let wrong = |what: String| {
        AuthError::Network(NetworkError::Failed(format!("Amazon's API for registries {what}")))
    };
    let suffix = if key.region.starts_with("cn-") { ".cn" } else { "" };
    let endpoint = match &network.settings().ecr_endpoint {
        Some(endpoint) => endpoint.clone(),
        None => format!("https://api.ecr.{}.amazonaws.com{suffix}/", key.region),
    };
    let url = Url::parse(&endpoint).map_err(|_| wrong("has an invalid URL".into()))?;
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let body = "{}";
    let headers = signed(key, &host_of(&url), url.path(), &now, body).ok_or(AuthError::Denied)?;
    let response = network
        .send(Method::POST, &url, headers, Bytes::from_static(body.as_bytes()))
        .await
        .map_err(AuthError::Network)?;
    match response.status().as_u16() {
        200 => {}
        // A wrong key is status 400 with the type of the error in the body.
        400 | 401 | 403 => return Err(AuthError::Denied),
        status => return Err(wrong(format!("returned status code {status}"))),
    }
    let body = read(response, MAX_ANSWER).await.map_err(|why| wrong(format!("failed: {why}")))?;
    let answer: Answer = serde_json::from_slice(&body).map_err(|_| wrong("returned no token".into()))?;
    let token = answer.authorization_data.first().map(|data| data.authorization_token.as_str());
    let pair =
        token.and_then(|token| STANDARD.decode(token).ok()).and_then(|pair| String::from_utf8(pair).ok());
    let (username, password) = pair
        .as_deref()
        .and_then(|pair| pair.split_once(':'))
        .ok_or_else(|| wrong("returned no token".into()))?;
    Ok(Login { username: username.to_owned(), password: Secret::new(password) })
}

/// The headers of the request, with its signature. `None` if the key cannot be part of a header.
fn signed(key: &AccessKey<'_>, host: &str, path: &str, now: &str, body: &str) -> Option<HeaderMap> {
    // Names are sorted, as the signature needs them.
    let values =
        [("content-type", CONTENT_TYPE), ("host", host), ("x-amz-date", now), ("x-amz-target", TARGET)];
    let authorization = authorization(key, "ecr", path, now, &values, body);
    let mut headers = HeaderMap::new();
    for (name, value) in values.into_iter().filter(|(name, _)| *name != "host") {
        headers.insert(name, HeaderValue::from_str(value).ok()?);
    }
    let mut authorization = HeaderValue::try_from(authorization).ok()?;
    authorization.set_sensitive(true);
    headers.insert("authorization", authorization);
    Some(headers)
}

/// The `Authorization` header of a POST request without a query.
fn authorization(
    key: &AccessKey<'_>,
    service: &str,
    path: &str,
    now: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> String {
    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical = format!("POST\n{path}\n\n{lines}\n{names}\n{}", hex(&Sha256::digest(body)));
    let day = now.get(..8).unwrap_or(now);
    let scope = format!("{day}/{}/{service}/aws4_request", key.region);
    let text = format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{}", hex(&Sha256::digest(&canonical)));
    let first = format!("AWS4{}", key.secret.expose()).into_bytes();
    let signing = [day, key.region, service, "aws4_request"].iter().fold(first, |key, part| sign(&key, part));
    format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={}",
        key.id,
        hex(&sign(&signing, &text))
    )
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    // A key of any length is accepted: no error is possible.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The case `post-vanilla` of Amazon's test suite for Signature Version 4.
    #[test]
    fn signatures_are_those_of_amazons_test_suite() {
        let secret = Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        let key = AccessKey { id: "AKIDEXAMPLE", secret: &secret, region: "us-east-1" };
        let headers = [("host", "example.amazonaws.com"), ("x-amz-date", "20150830T123600Z")];
        assert_eq!(
            authorization(&key, "service", "/", "20150830T123600Z", &headers, ""),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date, \
             Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
        );
    }

    #[test]
    fn regions_are_names() {
        assert!(is_region("eu-central-1") && is_region("us-gov-west-1"));
        for wrong in ["", "a.example/", "EU", "a b", &"a".repeat(33)] {
            assert!(!is_region(wrong), "{wrong}");
        }
    }
}
