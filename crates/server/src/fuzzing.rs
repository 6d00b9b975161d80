//! Properties of what clients send that hold for any bytes: here of addresses and signed URLs. The programs in `fuzz/` search for
//! bytes that break them; the tests below replay the inputs that they have collected.

use http::Method;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use sandcove_wire::boot::AGENT_PORT;
use sandcove_wire::control::control_route;
use sandcove_wire::id::{SandboxId, TemplateId};
use sandcove_wire::secret::Secret;

use crate::proxy::host_route::{Prefixes, Target, requested_host, route};
use crate::proxy::{SignedUrl, local_uri};

pub use crate::builds::fuzzing::variables;
pub use crate::http::fuzzing::{body, query};
pub use crate::volumes::fuzzing::volume_token;

/// Checks the head of a request: the first line is the path, each one after it a header.
pub fn host(input: &[u8]) {
    let mut lines = input.split(|byte| *byte == b'\n');
    let path = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let headers: HeaderMap = lines.filter_map(header).collect();
    control_routes(&path);
    let Ok(host) = requested_host(None, &headers) else {
        let hosts: Vec<_> = headers.get_all(HOST).iter().collect();
        assert!(hosts.len() > 1 || hosts[0].to_str().is_err(), "a plain host was refused");
        return;
    };
    let none = Prefixes::default();
    let set = Prefixes { api: Some("/api".into()), sandbox: Some("/sbx/".into()) };
    for prefixes in [&none, &set] {
        let Ok((target, cut)) = route(host, &headers, &path, prefixes) else { continue };
        assert!(["", "/api", "/sbx"].contains(&&path[..cut]), "{cut} bytes are no prefix");
        assert!(path[cut..].is_empty() || cut == 0 || path[cut..].starts_with('/'));
        if let Ok(uri) = path.parse() {
            assert!(local_uri(&uri, cut).path().starts_with('/'));
        }
        check(&target, host.unwrap_or_default(), &headers, &path[..cut]);
    }
}

fn header(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = HeaderName::from_bytes(&line[..colon]).ok()?;
    Some((name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?))
}

/// Checks that a target follows the order of decisions (contract: control-plane, section 15.4).
fn check(target: &Target, host: &str, headers: &HeaderMap, prefix: &str) {
    let label = host.split_once('.').map_or("", |(label, _)| label);
    let names_a_port = label
        .split_once('-')
        .is_some_and(|(port, _)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let port_header = text("e2b-sandbox-port");
    match target {
        Target::Sandbox { id, port } => {
            assert_ne!(*port, 0);
            let id = id.as_str();
            assert!((1..64).contains(&id.len()));
            assert!(id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
            if names_a_port {
                let mut parts = label.split('-');
                assert_eq!(parts.next().and_then(|text| text.parse().ok()), Some(*port));
                assert!(parts.next().is_some_and(|text| text.eq_ignore_ascii_case(id)));
            } else {
                assert_eq!(port_header.and_then(|text| text.parse().ok()), Some(*port));
                assert_eq!(text("e2b-sandbox-id").and_then(|text| text.split('-').next()), Some(id));
                assert!(prefix == "/sbx" || *port != AGENT_PORT || !headers.contains_key("x-api-key"));
            }
        }
        Target::Api => assert!(prefix == "/api" || !names_a_port && prefix.is_empty()),
        Target::SomeAgent => {
            assert!(!names_a_port && port_header.is_none_or(|text| text.parse() == Ok(AGENT_PORT)));
        }
    }
}

/// Checks that a control route is one in every spelling, and that nothing else becomes one.
fn control_routes(path: &str) {
    let decoded = percent_decode_str(path).decode_utf8_lossy().into_owned();
    let is_control_route = |path: &str| control_route(path).is_some();
    let is_control = is_control_route(path);
    let encoded = percent_encode(decoded.as_bytes(), NON_ALPHANUMERIC).to_string();
    assert_eq!(is_control_route(&encoded), is_control);
    assert_eq!(is_control_route(&format!("/{path}/")), is_control);
    assert_eq!(is_control_route(&format!("/x/.././/{path}/./")), is_control);
    assert!(
        !is_control_route(&format!("/x{}", path.trim_start_matches(['/', '.']))) || decoded.contains("..")
    );
}

/// Checks a signed URL and ids. The first line is the path of the URL, the second its query, the third an id.
pub fn signed_url(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut lines = text.split('\n');
    let (path, query) = (lines.next().unwrap_or_default(), lines.next());
    for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE] {
        let Some(url) = SignedUrl::parse(&method, path, query) else { continue };
        assert!(path == "/files" && [Method::GET, Method::HEAD, Method::POST].contains(&method));
        assert!(!url.check()(&Secret::new("a token that no input knows")));
    }
    let id = lines.next().unwrap_or_default();
    if let Ok(id) = id.parse::<SandboxId>() {
        assert_eq!(id.as_str().parse().ok(), Some(id.clone()));
        assert!(id.as_str().bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
    }
    if let Ok(parsed) = id.parse::<TemplateId>() {
        assert_eq!(parsed.as_str(), id);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_hosts_collected_by_fuzzing_hold() {
        replay("host", host);
    }

    #[test]
    fn the_queries_collected_by_fuzzing_hold() {
        replay("query", query);
    }

    #[test]
    fn the_bodies_collected_by_fuzzing_hold() {
        replay("body", body);
    }

    #[test]
    fn the_signed_urls_collected_by_fuzzing_hold() {
        replay("signed_url", signed_url);
    }

    #[test]
    fn the_volume_tokens_collected_by_fuzzing_hold() {
        replay("volume_token", volume_token);
    }

    #[test]
    fn the_variables_collected_by_fuzzing_hold() {
        replay("variables", variables);
    }

    fn replay(target: &str, check: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let inputs: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty());
        for input in inputs {
            println!("{}", input.display());
            check(&std::fs::read(input).unwrap());
        }
    }
}
