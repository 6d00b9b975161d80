//! The routing of requests to the API or to a sandbox: pure, and never panics on any input (contract: control-plane,
//! section 15.4).

use http::header::{self, HeaderMap};
use sandcove_wire::boot::AGENT_PORT;
use sandcove_wire::id::SandboxId;

use super::Refusal;

/// First path segments that are API calls even without an API key.
const API_SEGMENTS: [&str; 6] = ["volumecontent", "teams", "api-keys", "access-tokens", "nodes", "admin"];

/// The target of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The REST API.
    Api,
    /// A port of a sandbox.
    Sandbox { id: SandboxId, port: u16 },
    /// The agent of a sandbox that only a token or signature identifies.
    SomeAgent,
}

/// Path prefixes that the operator has set; they decide before anything else and are cut off.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prefixes {
    pub(crate) api: Option<String>,
    pub(crate) sandbox: Option<String>,
}

/// The host that a request is for: that of its address, which HTTP/2 always has, or of its `Host` header. A second header,
/// or one that is not text, could mean one thing here and another to a service, and is refused.
pub(crate) fn requested_host<'a>(
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

/// Decides the target of a request, and how many bytes of its path are a prefix to cut off.
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
    if headers.contains_key("x-access-token") || is_agent_path || is_preflight_to_sandbox(headers) {
        return Ok((Target::SomeAgent, 0));
    }
    Ok((Target::Api, 0))
}

/// Whether a browser asks if it may send a request that names a sandbox. It does not say which.
fn is_preflight_to_sandbox(headers: &HeaderMap) -> bool {
    let asked = header(headers, "access-control-request-headers").unwrap_or_default();
    asked.split(',').any(|name| name.trim().eq_ignore_ascii_case("e2b-sandbox-id"))
}

/// Length of `prefix` when `path` is below it.
fn below(path: &str, prefix: &str) -> Option<usize> {
    let prefix = prefix.trim_end_matches('/');
    let rest = path.strip_prefix(prefix)?;
    (!prefix.is_empty() && (rest.is_empty() || rest.starts_with('/'))).then_some(prefix.len())
}

/// The target of a host `{port}-{id}[-{client}].{domain}`; none when the first label does not begin with a number and a
/// dash.
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

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;
    use sandcove_wire::control::control_route;

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
    fn a_preflight_of_a_request_that_names_a_sandbox_is_for_one() {
        let asks = |names| target("localhost", &[("access-control-request-headers", names)], "/execute");
        assert_eq!(asks("content-type, e2b-sandbox-port,E2b-Sandbox-Id"), Ok(Target::SomeAgent));
        assert_eq!(asks("content-type, x-api-key"), Ok(Target::Api));
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
            let _ = control_route(&path);
        }
    }
}
