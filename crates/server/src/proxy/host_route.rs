//! Which requests are for a sandbox, and for which: pure, and total over whatever a client sends (contract:
//! control-plane, section 15.4).

use http::header::{self, HeaderMap};
use percent_encoding::percent_decode_str;
use sandcove_wire::boot::AGENT_PORT;
use sandcove_wire::id::SandboxId;

use super::Refusal;

/// Agent routes that are the control plane's own (contract: envd, section 7).
const CONTROL_ROUTES: [&str; 7] =
    ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"];
/// First path segments that are API calls even without an API key.
const API_SEGMENTS: [&str; 6] = ["volumecontent", "teams", "api-keys", "access-tokens", "nodes", "admin"];

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The REST API.
    Api,
    /// A port of a sandbox.
    Sandbox { id: SandboxId, port: u16 },
    /// The agent of a sandbox that only a token or signature names.
    SomeAgent,
}

/// Path prefixes an operator has set; they decide before anything else and are cut off.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prefixes {
    pub(crate) api: Option<String>,
    pub(crate) sandbox: Option<String>,
}

/// The host a request is for: that of its address, which HTTP/2 always has, or of its `Host` header. A second one, or one
/// that is no text, would mean one thing here and another to a service.
pub(crate) fn asked_host<'a>(
    authority: Option<&'a str>,
    headers: &'a HeaderMap,
) -> Result<Option<&'a str>, Refusal> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().map(|host| host.to_str()).transpose();
    let host = host.map_err(|_| Refusal::BadAddress("invalid Host header"))?;
    match hosts.next() {
        Some(_) => Err(Refusal::BadAddress("more than one Host header")),
        None => Ok(authority.or(host)),
    }
}

/// Decides where a request goes, and how many bytes of its path are prefix.
pub(crate) fn route(
    host: Option<&str>,
    headers: &HeaderMap,
    path: &str,
    prefixes: &Prefixes,
) -> Result<(Target, usize), Refusal> {
    if let Some(cut) = prefixes.api.as_deref().and_then(|prefix| below(path, prefix)) {
        return Ok((Target::Api, cut));
    }
    let prefix = prefixes.sandbox.as_deref().and_then(|prefix| below(path, prefix));
    let cut = prefix.unwrap_or(0);
    if let Some(target) = by_host(host.unwrap_or_default())? {
        return Ok((target, cut));
    }
    let port = header(headers, "e2b-sandbox-port");
    let is_service = port.is_some_and(|port| port.parse() != Ok(AGENT_PORT));
    let has_id = headers.contains_key("e2b-sandbox-id");
    let has_key = headers.contains_key("x-api-key");
    if is_service || (has_id && (prefix.is_some() || !has_key)) {
        return by_headers(headers).map(|target| (target, cut));
    }
    if prefix.is_some() {
        return Ok((Target::SomeAgent, cut));
    }
    let first = path.split('/').nth(1).unwrap_or_default();
    if has_key || API_SEGMENTS.contains(&first) {
        return Ok((Target::Api, 0));
    }
    let is_agent_path = path == "/files"
        || path == "/health" && headers.contains_key("x-access-token")
        || first == "process.Process"
        || first == "filesystem.Filesystem";
    if headers.contains_key("x-access-token") || is_agent_path {
        return Ok((Target::SomeAgent, 0));
    }
    Ok((Target::Api, 0))
}

/// Length of `prefix` when `path` is below it.
fn below(path: &str, prefix: &str) -> Option<usize> {
    let prefix = prefix.trim_end_matches('/');
    let rest = path.strip_prefix(prefix)?;
    (!prefix.is_empty() && (rest.is_empty() || rest.starts_with('/'))).then_some(prefix.len())
}

/// `{port}-{id}[-{client}].{domain}`. A first label that does not begin with a number and a dash is no such host.
fn by_host(host: &str) -> Result<Option<Target>, Refusal> {
    let Some((label, _)) = host.split_once('.') else { return Ok(None) };
    let mut pieces = label.split('-');
    let (Some(port), Some(id)) = (pieces.next(), pieces.next()) else { return Ok(None) };
    if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(None);
    }
    let port = parse_port(port).ok_or(Refusal::BadAddress("invalid port in host"))?;
    let id =
        id.to_ascii_lowercase().parse().map_err(|_| Refusal::BadAddress("invalid sandbox ID in host"))?;
    Ok(Some(Target::Sandbox { id, port }))
}

fn by_headers(headers: &HeaderMap) -> Result<Target, Refusal> {
    let id = header(headers, "e2b-sandbox-id").ok_or(Refusal::BadAddress("missing header E2b-Sandbox-Id"))?;
    let port =
        header(headers, "e2b-sandbox-port").ok_or(Refusal::BadAddress("missing header E2b-Sandbox-Port"))?;
    let port = parse_port(port).ok_or(Refusal::BadAddress("invalid sandbox port"))?;
    let id = id.parse().map_err(|_| Refusal::BadAddress("invalid sandbox ID"))?;
    Ok(Target::Sandbox { id, port })
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default().trim())
}

fn parse_port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

/// Whether a path on the agent's port is refused from outside. It is decoded and cleaned first, as the agent's own
/// router might do.
pub(crate) fn is_control_route(path: &str) -> bool {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    let mut clean: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    let [only] = clean.as_slice() else { return false };
    CONTROL_ROUTES.iter().any(|route| route[1..].eq_ignore_ascii_case(only))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    fn target(host: &str, pairs: &[(&'static str, &str)], path: &str) -> Result<Target, Refusal> {
        route(Some(host), &headers(pairs), path, &Prefixes::default()).map(|(target, _)| target)
    }

    fn sandbox(id: &str, port: u16) -> Result<Target, Refusal> {
        Ok(Target::Sandbox { id: id.parse().unwrap(), port })
    }

    const AGENT: (&str, &str) = ("e2b-sandbox-port", "49983");
    const ID: (&str, &str) = ("e2b-sandbox-id", "iabc");
    const KEY: (&str, &str) = ("x-api-key", "e2b_00");

    #[test]
    fn host_labels_name_a_sandbox_whatever_the_headers_say() {
        assert_eq!(target("3000-iabc.localhost:3000", &[KEY], "/"), sandbox("iabc", 3000));
        assert_eq!(target("49983-iabc-6532622b.e2b.app", &[], "/files"), sandbox("iabc", 49983));
        assert_eq!(target("8080-IABC.localhost", &[], "/"), sandbox("iabc", 8080));
    }

    #[test]
    fn other_hosts_are_the_api() {
        for host in ["localhost:3000", "127.0.0.1", "api.e2b.app", "my-host.lan", "[::1]:3000", ""] {
            assert_eq!(target(host, &[], "/sandboxes"), Ok(Target::Api), "{host}");
        }
    }

    #[test]
    fn malformed_addresses_are_refused() {
        assert!(target("0-iabc.localhost", &[], "/").is_err());
        assert!(target("99999-iabc.localhost", &[], "/").is_err());
        assert!(target("3000-i_bc.localhost", &[], "/").is_err());
        assert!(target("localhost", &[ID], "/").is_err());
        assert!(target("localhost", &[("e2b-sandbox-port", "3000")], "/").is_err());
        assert!(target("localhost", &[("e2b-sandbox-port", "x"), ID], "/").is_err());
    }

    #[test]
    fn an_api_key_decides_before_the_sandbox_headers_of_python_2_7() {
        assert_eq!(target("localhost", &[KEY, ID, AGENT], "/sandboxes/iabc/connect"), Ok(Target::Api));
        assert_eq!(target("localhost", &[ID, AGENT], "/health"), sandbox("iabc", 49983));
    }

    #[test]
    fn services_may_carry_an_api_key_of_their_own() {
        let service = ("e2b-sandbox-port", "8080");
        assert_eq!(target("localhost", &[KEY, ID, service], "/"), sandbox("iabc", 8080));
    }

    #[test]
    fn requests_without_an_id_are_the_agents_by_token_or_path() {
        let token = ("x-access-token", "t");
        assert_eq!(target("localhost", &[token], "/health"), Ok(Target::SomeAgent));
        assert_eq!(target("localhost", &[], "/files"), Ok(Target::SomeAgent));
        assert_eq!(target("localhost", &[], "/process.Process/Start"), Ok(Target::SomeAgent));
        assert_eq!(target("localhost", &[], "/health"), Ok(Target::Api));
        assert_eq!(target("localhost", &[token], "/teams"), Ok(Target::Api));
        assert_eq!(target("localhost", &[token, KEY], "/sandboxes"), Ok(Target::Api));
    }

    #[test]
    fn prefixes_decide_first_and_are_cut_off() {
        let prefixes = Prefixes { api: Some("/api".into()), sandbox: Some("/sbx/".into()) };
        let at = |path: &str, pairs: &[(&'static str, &str)]| {
            route(Some("localhost"), &headers(pairs), path, &prefixes).unwrap()
        };
        assert_eq!(at("/api/sandboxes", &[ID, AGENT]), (Target::Api, 4));
        assert_eq!(at("/sbx/health", &[ID, AGENT]).1, 4);
        assert_eq!(at("/sbx/health", &[]), (Target::SomeAgent, 4));
        assert_eq!(at("/api-keys", &[]), (Target::Api, 0));
    }

    #[test]
    fn control_routes_are_found_behind_any_spelling() {
        for path in
            ["/init", "//init", "/%69nit", "/./init", "/a/../init", "/init/", "/%2e%2e/upgrade", "/Freeze"]
        {
            assert!(is_control_route(path), "{path}");
        }
        for path in ["/", "/files", "/initial", "/a/init", "/process.Process/Start"] {
            assert!(!is_control_route(path), "{path}");
        }
    }

    proptest! {
        #[test]
        fn every_host_the_server_gives_out_is_read_back(
            port in 1u16..,
            id in "[a-z0-9]{1,63}",
            client in proptest::option::of("[a-z0-9]{1,8}"),
            domain in "[a-z]{1,9}(\\.[a-z]{1,9}){0,2}(:[0-9]{1,5})?",
        ) {
            let client = client.map(|c| format!("-{c}")).unwrap_or_default();
            let host = format!("{port}-{id}{client}.{domain}");
            prop_assert_eq!(target(&host, &[], "/"), sandbox(&id, port));
        }

        #[test]
        fn no_host_makes_it_fall_over(host in ".*", path in "/.*") {
            let _ = route(Some(&host), &HeaderMap::new(), &path, &Prefixes::default());
            let _ = is_control_route(&path);
        }
    }
}
