//! Rules that give headers to requests of a sandbox: `rules` of its network (contract: control-plane, section 6.3).

use std::collections::BTreeSet;

use sandcove_isolate::{HostRule, PLACEHOLDER_END, SECRET_PLACEHOLDER, TOKEN_PLACEHOLDER};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::network::{InvalidNetwork, is_name};

/// Maximum number of hosts and domains.
const MAX_HOSTS: usize = 10;
/// Maximum length of the name of a host or domain, characters.
const MAX_HOST: usize = 128;
/// Maximum number of headers of a rule.
const MAX_HEADERS: usize = 20;
/// Maximum length of the name of a header, bytes.
const MAX_HEADER: usize = 64;
/// Maximum length of the value of a header, bytes.
const MAX_VALUE: usize = 2048;
/// Beginning of every placeholder.
const PLACEHOLDER: &str = "${e2b";
/// Headers that decide where a message goes or where it ends.
const FRAMING: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// A rule as clients send it.
#[derive(Deserialize)]
struct Given {
    #[serde(default)]
    transform: Option<Transform>,
}

#[derive(Default, Deserialize)]
struct Transform {
    #[serde(default)]
    headers: Option<Map<String, Value>>,
}

/// Checks rules, and returns those that give headers.
pub(super) fn checked(rules: &Map<String, Value>) -> Result<Vec<HostRule>, InvalidNetwork> {
    if rules.len() > MAX_HOSTS {
        return refused(format!("at most {MAX_HOSTS} domains are allowed, not {}", rules.len()));
    }
    let mut hosts: Vec<HostRule> = Vec::new();
    for (host, given) in rules {
        let name = host.to_ascii_lowercase();
        let below = name.strip_prefix("*.").unwrap_or(&name);
        if name.len() > MAX_HOST || !is_name(below) || below.parse::<std::net::IpAddr>().is_ok() {
            return refused(format!("'{}' is not a domain", host.chars().take(MAX_HOST).collect::<String>()));
        }
        let Ok(given) = Vec::<Given>::deserialize(given) else {
            return refused(format!("the rules of '{name}' are not a list of transforms"));
        };
        if given.len() > 1 {
            return refused(format!("'{name}' has {} transforms: one is allowed", given.len()));
        }
        let transform = given.into_iter().next().and_then(|rule| rule.transform).unwrap_or_default();
        let headers = headers(&name, transform.headers.unwrap_or_default())?;
        if hosts.iter().any(|other| other.host == name) {
            return refused(format!("'{name}' is duplicated"));
        }
        if !headers.is_empty() {
            hosts.push(HostRule { host: name, headers });
        }
    }
    Ok(hosts)
}

fn headers(host: &str, given: Map<String, Value>) -> Result<Vec<(String, String)>, InvalidNetwork> {
    if given.len() > MAX_HEADERS {
        return refused(format!("'{host}' has {} headers: at most {MAX_HEADERS} are allowed", given.len()));
    }
    let mut headers: Vec<(String, String)> = Vec::new();
    for (name, value) in given {
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || name.len() > MAX_HEADER || !name.bytes().all(is_token) {
            return refused(format!("a header of '{host}' has no name of 1 to {MAX_HEADER} characters"));
        }
        let lower = name.to_ascii_lowercase();
        if FRAMING.contains(&&*lower) {
            return refused(format!("the header '{name}' of '{host}' cannot be set"));
        }
        if headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(&name)) {
            return refused(format!("the header '{name}' of '{host}' is duplicated"));
        }
        let Value::String(value) = value else {
            return refused(format!("the header '{name}' of '{host}' has no text"));
        };
        let is_value = value.len() <= MAX_VALUE && !value.chars().any(|c| c.is_control() && c != '\t');
        if !is_value || !has_known_placeholders(&value) {
            return refused(format!(
                "the header '{name}' of '{host}' is not valid: at most {MAX_VALUE} bytes, no control characters, and no \
                 placeholders but ${{e2b.secrets.NAME}} and ${{e2b.identity.tokens.NAME}}"
            ));
        }
        headers.push((name, value));
    }
    Ok(headers)
}

/// Whether all placeholders are those of secrets and tokens.
fn has_known_placeholders(value: &str) -> bool {
    let is_token = |part: &&str| {
        part.split_once(PLACEHOLDER_END).is_some_and(|(name, _)| !name.is_empty() && !name.contains('{'))
    };
    let tokens = value.split(TOKEN_PLACEHOLDER).skip(1).filter(is_token).count();
    value.matches(PLACEHOLDER).count() == names(value).count() + tokens
}

/// Names of the secrets in a value, as far as they are names.
fn names(value: &str) -> impl Iterator<Item = &str> {
    let is_name = |name: &&str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    let parts = value.split(SECRET_PLACEHOLDER).skip(1);
    parts.filter_map(|part| Some(part.split_once(PLACEHOLDER_END)?.0)).filter(is_name)
}

/// Names of the secrets that rules need.
pub(crate) fn secrets(hosts: &[HostRule]) -> BTreeSet<String> {
    let values = hosts.iter().flat_map(|rule| &rule.headers);
    values.flat_map(|(_, value)| names(value)).map(str::to_owned).collect()
}

fn refused<T>(reason: String) -> Result<T, InvalidNetwork> {
    Err(InvalidNetwork::Rules(reason))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(rules: Value) -> Result<Vec<HostRule>, String> {
        checked(rules.as_object().unwrap()).map_err(|error| error.to_string())
    }

    fn with(name: &str, value: &str) -> Value {
        json!({ "example.com": [{ "transform": { "headers": { name: value } } }] })
    }

    #[test]
    fn rules_of_every_form() {
        let rules = check(json!({
            "API.Example.com": [{ "transform": { "headers": { "Authorization": "Bearer ${e2b.secrets.Key-1}", "X-A": "b" } } }],
            "*.example.org": [{ "transform": { "headers": { "X-Key": "${e2b.secrets.a}${e2b.secrets.b}",
                "X-Token": "${e2b.identity.tokens.my token} ${e2b.secrets.a}" } } }],
            "nothing.example": [],
            "empty.example": [{ "transform": {} }],
        }))
        .unwrap();
        let hosts: BTreeSet<&str> = rules.iter().map(|rule| rule.host.as_str()).collect();
        assert_eq!(hosts, BTreeSet::from(["api.example.com", "*.example.org"]));
        assert_eq!(secrets(&rules).into_iter().collect::<Vec<_>>(), ["Key-1", "a", "b"]);
    }

    #[test]
    fn what_is_no_rule_is_refused_with_a_reason() {
        for host in ["*", "", "a b", "*.", "1.2.3.4", "10.0.0.0/8", "x.*.com", &"a.".repeat(100)] {
            let rule = json!({ host: [{ "transform": { "headers": { "a": "b" } } }] });
            assert!(check(rule).unwrap_err().contains("is not a domain"), "{host}");
        }
        for (name, value) in [
            ("", "b"),
            ("a b", "b"),
            ("a:", "b"),
            ("Host", "b"),
            ("content-length", "1"),
            ("a", "b\r\nc: d"),
            ("a", "${e2b.identity.tokens.}"),
            ("a", "${e2b.identity.tokens.a{b}"),
            ("a", "${e2b.identity.aws}"),
            ("a", "${e2b.secrets.}"),
            ("a", "${e2b.secrets.a b}"),
            ("a", "${e2b.secrets.a"),
            ("a", "${e2b"),
            (&"x".repeat(65), "b"),
            ("a", &"x".repeat(2049)),
        ] {
            assert!(check(with(name, value)).is_err(), "{name}: {value}");
        }
        let many: Map<String, Value> = (0..11).map(|n| (format!("h{n}.example"), json!([]))).collect();
        assert!(check(Value::Object(many)).is_err());
        let headers: Map<String, Value> = (0..21).map(|n| (format!("h{n}"), json!("v"))).collect();
        assert!(check(json!({ "example.com": [{ "transform": { "headers": headers } }] })).is_err());
        let two = json!({ "example.com": [{ "transform": {} }, { "transform": {} }] });
        assert!(check(two).unwrap_err().contains("2 transforms"));
        for other in [
            json!({ "example.com": {} }),
            json!({ "example.com": [{ "transform": { "headers": { "a": 1 } } }] }),
        ] {
            assert!(check(other).is_err());
        }
        let twice = json!({ "Example.com": [{ "transform": { "headers": { "a": "b" } } }],
            "example.com": [{ "transform": { "headers": { "a": "b" } } }] });
        assert!(check(twice).unwrap_err().contains("duplicated"));
    }
}
