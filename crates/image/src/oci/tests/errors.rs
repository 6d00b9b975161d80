//! Errors of registries, and addresses that may not be connected to.

use std::net::IpAddr;

use super::support::*;
use crate::oci::Settings;

#[tokio::test]
async fn answers_of_registries_become_errors_with_fixed_texts() {
    for (status, code, expected) in [
        (404, "MANIFEST_UNKNOWN", "image '{}' not found: the image or tag does not exist in the registry"),
        (404, "", "image '{}' not found: the image or tag does not exist in the registry"),
        (404, "NAME_UNKNOWN", "repository 'a/b' not found: verify the image name is correct"),
        (403, "DENIED", "access denied to '{}': authentication required or insufficient permissions"),
        (401, "UNAUTHORIZED", "access denied to '{}': authentication required or insufficient permissions"),
        (400, "DENIED", "access denied to '{}': authentication required or insufficient permissions"),
        (418, "", "failed to pull image '{}': registry returned status code 418"),
        (503, "", "failed to pull image '{}': registry returned status code 503"),
        (429, "TOOMANYREQUESTS", "failed to pull image '{}': registry returned status code 429"),
    ] {
        let registry = Registry::with(move |_, _| Response::error(status, code)).await;
        let error = Place::new().error(&registry.image(), &registry.settings()).await;
        assert_eq!(error, expected.replace("{}", &registry.image()));
    }
}

#[tokio::test]
async fn an_error_that_passes_is_tried_again() {
    let registry = Registry::with(|request, good| {
        let is_first = request.path.contains("/manifests/") && !request.path.contains('@');
        match is_first && COUNT.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
            true => Response::error(503, ""),
            false => good,
        }
    })
    .await;
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    registry.add("v1", &small());
    Place::new().import(&registry.image(), &registry.settings()).await.unwrap();
}

#[tokio::test]
async fn private_addresses_are_not_connected_to() {
    let (registry, place) = (Registry::start().await, Place::new());
    registry.add("v1", &small());
    let strict = Settings::new(|address: IpAddr| !address.is_loopback());
    let port = registry.address.port();
    for host in ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "127.1", "[::ffff:127.0.0.1]"] {
        let error = place.error(&format!("{host}:{port}/a/b:v1"), &strict).await;
        let is_refused =
            error.contains("has an address that is not on the internet") || error.contains("invalid");
        assert!(is_refused, "{host}: {error}");
    }
    assert!(registry.requests().is_empty());
    // A public address is reached with TLS only.
    let open = Settings::new(|_| true);
    let error = place.error(&registry.image(), &open).await;
    assert!(error.contains("no TLS connection"), "{error}");
    assert!(!error.contains("http://"), "{error}");
}

#[tokio::test]
async fn redirects_and_token_servers_are_no_way_around() {
    let secret = Registry::start().await;
    let target = secret.address;
    for (location, expected) in [
        (format!("http://{target}/x"), "would be reached without TLS"),
        (format!("https://{target}/x"), "has an address that is not on the internet"),
        (format!("https://user:pass@{target}/x"), "has credentials"),
        ("file:///etc/passwd".into(), "has a scheme other than"),
        (String::new(), "redirects more than 5 times"),
        ("http://[".into(), "redirects to an invalid location"),
    ] {
        let copy = location.clone();
        let registry =
            Registry::with(move |_, _| Response::new(307, "").header("location", copy.clone())).await;
        let error = Place::new().error(&registry.image(), &registry.settings()).await;
        assert!(error.contains(expected), "{location}: {error}");

        let challenge = format!("Bearer realm=\"{location}\"");
        let registry = Registry::with(move |_, _| {
            Response::error(401, "UNAUTHORIZED").header("www-authenticate", challenge.clone())
        })
        .await;
        let error = Place::new().error(&registry.image(), &registry.settings()).await;
        assert!(
            error.contains(expected) || error.contains("the token server has an invalid URL"),
            "{location}: {error}"
        );
    }
    assert!(secret.requests().is_empty());
}

#[tokio::test]
async fn documents_of_any_size_do_not_fill_the_memory() {
    let registry = Registry::with(|_, _| Response::new(200, vec![b' '; 5 << 20])).await;
    let error = Place::new().error(&registry.image(), &registry.settings()).await;
    assert!(error.contains("has more than 4194304 bytes"), "{error}");
}
