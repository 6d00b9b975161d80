//! Credentials: who gets them, and in which form.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandcove_wire::secret::Secret;
use serde_json::json;

use super::support::*;
use crate::oci::Credentials;

const KEY_FILE: &str = r#"{"type":"service_account","private_key":"hunter2"}"#;

fn basic(username: &str, password: &str) -> Credentials {
    Credentials::Basic { username: username.into(), password: Secret::new(password) }
}

fn header(username: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
}

/// A registry that wants a token, which it gives itself: to everybody if `login` is none. A token is valid for `uses` requests.
async fn with_tokens(login: Option<String>, uses: usize) -> Registry {
    let count = AtomicUsize::new(0);
    Registry::with(move |request, good| {
        if request.path.starts_with("/token?") {
            let is_known = login.as_ref().is_none_or(|login| request.header("authorization") == login);
            return match is_known {
                true => Response::new(
                    200,
                    json!({ "token": format!("t{}", count.load(Ordering::SeqCst)) }).to_string(),
                ),
                false => Response::error(401, "UNAUTHORIZED"),
            };
        }
        let token = count.load(Ordering::SeqCst) / uses * uses;
        if request.header("authorization") == format!("Bearer t{token}") {
            count.fetch_add(1, Ordering::SeqCst);
            return good;
        }
        count.store(token, Ordering::SeqCst);
        let realm = format!("http://{}/token", request.header("host"));
        let challenge =
            format!("Bearer realm=\"{realm}\",service=\"reg\",scope=\"repository:secret/x:pull,push\"");
        Response::error(401, "UNAUTHORIZED").header("www-authenticate", challenge)
    })
    .await
}

#[tokio::test]
async fn anonymous_clients_get_a_token_for_this_repository_only() {
    let (registry, place) = (with_tokens(None, 100).await, Place::new());
    registry.add("v1", &small());
    place.import(&registry.image(), &registry.settings()).await.unwrap();
    let requests = registry.requests();
    let tokens: Vec<_> = requests.iter().filter(|request| request.path.starts_with("/token")).collect();
    assert_eq!(tokens.len(), 1);
    assert_eq!(tokens[0].path, "/token?scope=repository%3Aa%2Fb%3Apull&service=reg");
    assert_eq!(tokens[0].header("authorization"), "");
}

#[tokio::test]
async fn a_token_that_expires_is_replaced() {
    let (registry, place) = (with_tokens(Some(header("u", "p")), 1).await, Place::new());
    registry.add("v1", &small());
    place.import_as(&registry.image(), &basic("u", "p"), &registry.settings()).await.unwrap();
    let tokens = registry.requests().iter().filter(|request| request.path.starts_with("/token")).count();
    assert!(tokens >= 3, "{tokens}");
    // A password is sent to the token server only.
    let is_kept = |request: &Request| {
        request.path.starts_with("/token") || !request.header("authorization").starts_with("Basic")
    };
    assert!(registry.requests().iter().all(is_kept));
}

#[tokio::test]
async fn wrong_and_missing_credentials_are_denied() {
    let (registry, place) = (with_tokens(Some(header("u", "p")), 100).await, Place::new());
    registry.add("v1", &small());
    let image = registry.image();
    let expected = format!("access denied to '{image}': authentication required or insufficient permissions");
    assert_eq!(place.error(&image, &registry.settings()).await, expected);
    let wrong = place.import_as(&image, &basic("u", "wrong"), &registry.settings()).await.unwrap_err();
    assert_eq!(wrong.to_string(), expected);
    assert!(!wrong.is_internal());
}

#[tokio::test]
async fn basic_authentication_and_key_files_of_google() {
    let expected = [header("u", "p"), header("_json_key", KEY_FILE)];
    let registry = Registry::with(move |request, good| {
        if expected.iter().any(|header| request.header("authorization") == header) {
            return good;
        }
        Response::error(401, "UNAUTHORIZED").header("www-authenticate", "Basic realm=\"x\"")
    })
    .await;
    registry.add("v1", &small());
    let google = Credentials::Gcr { service_account_json: Secret::new(KEY_FILE) };
    assert!(!format!("{google:?}").contains("hunter2"));
    for credentials in [basic("u", "p"), google] {
        Place::new().import_as(&registry.image(), &credentials, &registry.settings()).await.unwrap();
    }
    let error = Place::new().error(&registry.image(), &registry.settings()).await;
    assert!(error.starts_with("access denied to"), "{error}");
}

#[tokio::test]
async fn access_keys_of_amazon_are_exchanged_for_a_password() {
    let registry = Registry::with(|request, good| {
        if request.method == "POST" {
            let is_signed = request.header("authorization").starts_with("AWS4-HMAC-SHA256 Credential=AKID/")
                && request.header("authorization").contains("/eu-central-1/ecr/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature=")
                && request.header("x-amz-target").ends_with(".GetAuthorizationToken")
                && request.body == "{}";
            if !is_signed {
                return Response::new(400, r#"{"__type":"UnrecognizedClientException"}"#);
            }
            let token = STANDARD.encode("AWS:from-amazon");
            return Response::new(200, json!({ "authorizationData": [{ "authorizationToken": token }] }).to_string());
        }
        if request.header("authorization") == header("AWS", "from-amazon") {
            return good;
        }
        Response::error(401, "UNAUTHORIZED").header("www-authenticate", "Basic realm=\"x\"")
    })
    .await;
    registry.add("v1", &small());
    let key = |id: &str, region: &str| Credentials::Ecr {
        access_key_id: id.into(),
        secret_access_key: Secret::new("hunter2"),
        region: region.into(),
    };
    let (mut settings, image, place) = (registry.settings(), registry.image(), Place::new());
    let error =
        place.import_as(&image, &key("AKID", "eu-central-1"), &settings).await.unwrap_err().to_string();
    assert!(error.contains("is not a registry of AWS"), "{error}");
    settings.ecr_endpoint = Some(format!("http://{}/", registry.address));
    let error =
        place.import_as(&image, &key("OTHER", "eu-central-1"), &settings).await.unwrap_err().to_string();
    assert!(error.starts_with("access denied to") && !error.contains("hunter2"), "{error}");
    let error =
        place.import_as(&image, &key("AKID", "evil.example/"), &settings).await.unwrap_err().to_string();
    assert!(error.contains("is not a region of AWS"), "{error}");
    place.import_as(&image, &key("AKID", "eu-central-1"), &settings).await.unwrap();
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_host() {
    let (storage, place) = (Registry::start().await, Place::new());
    let target = storage.address;
    let registry = Registry::with(move |request, good| {
        if request.header("authorization").is_empty() {
            return Response::error(401, "UNAUTHORIZED").header("www-authenticate", "Basic");
        }
        match request.path.contains("/blobs/") {
            true => Response::new(307, "")
                .header("location", format!("http://{target}{}?signature=s", request.path)),
            false => good,
        }
    })
    .await;
    let source = small();
    registry.add("v1", &source);
    for blob in source.layers.iter().chain([&source.config]) {
        let digest = crate::oci::digest::Digest::of(blob);
        storage.put(&format!("/v2/a/b/blobs/{digest}?signature=s"), blob);
    }
    let mut settings = registry.settings();
    settings.insecure.push(target.to_string());
    place.import_as(&registry.image(), &basic("u", "p"), &settings).await.unwrap();
    assert_eq!(storage.requests().len(), 2);
    assert!(storage.requests().iter().all(|request| request.header("authorization").is_empty()));
}
