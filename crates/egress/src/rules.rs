//! The rules of a sandbox's proxy: hosts that it may reach, and headers that requests to some of them get.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// Beginning of the placeholder for a secret; its name and [`PLACEHOLDER_END`] follow.
pub const SECRET_PLACEHOLDER: &str = "${e2b.secrets.";
/// End of a placeholder.
pub const PLACEHOLDER_END: char = '}';

/// Rules of an egress proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Allowed host names, in lowercase: `name`, `*.name` for its subdomains, `*` for all.
    pub names: Vec<String>,
    /// Name servers that resolve them.
    pub servers: NameServers,
    /// Addresses that connections to other hosts may have.
    pub addresses: AddressRules,
    /// Hosts whose requests get headers.
    pub hosts: Vec<HostRule>,
    /// Secrets that these headers name.
    pub secrets: BTreeMap<String, SealedSecret>,
}

/// Name servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameServers {
    /// Name servers of the operator, at any address.
    Trusted(Vec<Ipv4Addr>),
    /// Name servers of a user, only at addresses that sandboxes may reach.
    Guarded(Vec<Ipv4Addr>),
}

/// The rules of a sandbox for addresses; those that allow win.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRules {
    /// Whether everything is denied that is not allowed.
    pub deny_all: bool,
    /// Allowed networks and addresses.
    pub allow: Vec<String>,
    /// Denied networks and addresses.
    pub deny: Vec<String>,
}

/// Headers for requests to one host, or to all hosts of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRule {
    /// The host in lowercase: `name`, or `*.name` for its subdomains.
    pub host: String,
    /// Names and values of headers; a value may have placeholders.
    pub headers: Vec<(String, String)>,
}

/// A sealed value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedSecret {
    /// Context that it was sealed for.
    pub context: String,
    /// The sealed value.
    pub sealed: String,
}

impl Rules {
    /// Whether connections to `host`, a name in lowercase, are allowed whatever its address.
    pub(crate) fn allow_name(&self, host: &str) -> bool {
        self.names.iter().any(|pattern| pattern == "*" || matches(pattern, host))
    }

    /// The rule for requests to `host`: that of exactly this name, or else the one of the closest domain.
    pub(crate) fn of_host(&self, host: &str) -> Option<&HostRule> {
        let matching = self.hosts.iter().filter(|rule| matches(&rule.host, host));
        matching.max_by_key(|rule| (!rule.host.starts_with('*'), rule.host.len()))
    }
}

impl AddressRules {
    /// Whether connections to `address` are allowed, whatever the host.
    pub(crate) fn allow_address(&self, address: Ipv4Addr) -> bool {
        let is_in = |networks: &[String]| networks.iter().any(|network| covers(network, address));
        is_in(&self.allow) || !(self.deny_all || is_in(&self.deny))
    }
}

fn matches(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(below) => host.len() > below.len() && host.ends_with(below),
        None => host == pattern,
    }
}

/// Whether `address` is in a network, `address` or `address/length`.
fn covers(network: &str, address: Ipv4Addr) -> bool {
    let (first, length) = network.split_once('/').unwrap_or((network, "32"));
    let (Ok(first), Ok(length)) = (first.parse::<Ipv4Addr>(), length.parse::<u32>()) else { return false };
    let shift = 32_u32.saturating_sub(length);
    u64::from(first.to_bits()) >> shift == u64::from(address.to_bits()) >> shift
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(names: &[&str], hosts: &[&str]) -> Rules {
        Rules {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            servers: NameServers::Trusted(vec![]),
            addresses: AddressRules::default(),
            hosts: hosts.iter().map(|&host| HostRule { host: host.to_owned(), headers: vec![] }).collect(),
            secrets: BTreeMap::new(),
        }
    }

    #[test]
    fn names_mean_what_they_say() {
        let allow = |names: &[&str], host: &str| rules(names, &[]).allow_name(host);
        assert!(allow(&["example.com"], "example.com"));
        assert!(!allow(&["example.com"], "www.example.com"));
        assert!(!allow(&["example.com"], "badexample.com"));
        assert!(allow(&["*.example.com"], "www.example.com") && allow(&["*.example.com"], "a.b.example.com"));
        assert!(!allow(&["*.example.com"], "example.com") && !allow(&["*.example.com"], "badexample.com"));
        assert!(allow(&["*"], "anything.there.is"));
        assert!(!allow(&[], "example.com"));
    }

    #[test]
    fn the_closest_rule_counts() {
        let rules = rules(&[], &["*.com", "a.example.com", "*.example.com"]);
        let of = |host: &str| rules.of_host(host).map(|rule| rule.host.as_str());
        assert_eq!(of("a.example.com"), Some("a.example.com"));
        assert_eq!(of("b.example.com"), Some("*.example.com"));
        assert_eq!((of("example.com"), of("other.com")), (Some("*.com"), Some("*.com")));
        assert_eq!((of("com"), of("example.org")), (None, None));
    }

    #[test]
    fn addresses_are_allowed_before_they_are_denied() {
        let list = |networks: &[&str]| networks.iter().map(|&network| network.to_owned()).collect::<Vec<_>>();
        let rules = AddressRules {
            deny_all: false,
            allow: list(&["1.2.3.4"]),
            deny: list(&["1.2.0.0/16", "9.0.0.0/8"]),
        };
        let allow = |address: [u8; 4]| rules.allow_address(address.into());
        assert!(allow([1, 2, 3, 4]) && allow([8, 8, 8, 8]) && !allow([1, 2, 3, 5]) && !allow([9, 255, 0, 1]));
        let closed = AddressRules { deny_all: true, allow: list(&["1.2.3.0/24"]), deny: vec![] };
        assert!(closed.allow_address([1, 2, 3, 9].into()) && !closed.allow_address([1, 2, 4, 9].into()));
        assert!(covers("0.0.0.0/0", [8, 8, 8, 8].into()) && !covers("x", [8, 8, 8, 8].into()));
    }
}
