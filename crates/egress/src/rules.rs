//! The rules of a sandbox's proxy: hosts that it may reach, and headers that requests to some of them get.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// Beginning of the placeholder for a secret; its name and [`PLACEHOLDER_END`] follow.
pub const SECRET_PLACEHOLDER: &str = "${e2b.secrets.";
/// Beginning of the placeholder for a token of the sandbox's identity; likewise.
pub const TOKEN_PLACEHOLDER: &str = "${e2b.identity.tokens.";
/// End of a placeholder.
pub const PLACEHOLDER_END: char = '}';

/// The network of all addresses.
const EVERYTHING: &str = "0.0.0.0/0";
/// Ports of web servers. On these, a client speaks first and names the host.
const WEB: [u16; 2] = [80, 443];

/// Rules of an egress proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Identity whose tokens these headers name.
    pub identity: Option<Identity>,
    /// Proxy that allowed connections go through.
    pub upstream: Option<Upstream>,
    /// Name servers of the operator, which resolve the name of that proxy.
    pub resolvers: Vec<Ipv4Addr>,
    /// Networks that no sandbox reaches, whatever the other rules say.
    pub walls: Vec<String>,
}

impl Default for NameServers {
    fn default() -> Self {
        Self::Trusted(Vec::new())
    }
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

/// A proxy of the user's, which speaks SOCKS5. All TCP that the rules allow goes through it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upstream {
    /// Name or IPv4 address of the proxy.
    pub host: String,
    /// Port of the proxy.
    pub port: u16,
    /// User name for the proxy.
    pub username: Option<String>,
    /// Password of this user.
    pub password: Option<SealedSecret>,
    /// Settings of TLS to the proxy; without it, the proxy is spoken to in the clear.
    pub tls: Option<UpstreamTls>,
}

/// Settings of TLS to a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamTls {
    /// Name in the certificate of the proxy; its host if unset.
    pub server_name: Option<String>,
    /// Authorities that sign this certificate, PEM; those that the server trusts if unset.
    pub ca_cert: Option<String>,
}

/// The identity of a sandbox: what its tokens say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The server that vouches for the sandbox, a URL.
    pub issuer: String,
    /// The sandbox, a SPIFFE ID.
    pub subject: String,
    /// Further claims, by name.
    pub claims: BTreeMap<String, String>,
    /// Audiences of the tokens, by name of the token.
    pub audiences: BTreeMap<String, String>,
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
    /// The entry that allows connections to `host`, a name in lowercase, whatever its address.
    pub(crate) fn name_entry(&self, host: &str) -> Option<&str> {
        self.names.iter().map(String::as_str).find(|pattern| *pattern == "*" || matches(pattern, host))
    }

    /// Whether no sandbox may reach `address`.
    pub(crate) fn is_walled_off(&self, address: Ipv4Addr) -> bool {
        self.walls.iter().any(|network| covers(network, address))
    }

    /// Whether it takes the name of a host to decide about connections to `port`, and where to send them.
    pub(crate) fn reads_names(&self, port: u16) -> bool {
        // Without names among the rules, all that is redirected beside the web goes to a proxy, whoever speaks first.
        !self.names.is_empty() || WEB.contains(&port)
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
        self.decide(address).is_ok()
    }

    /// The entry that allows connections to `address`, if it takes one, or the entry that denies them.
    pub(crate) fn decide<'a>(&'a self, address: Ipv4Addr) -> Result<Option<&'a str>, &'a str> {
        let entry = |networks: &'a [String]| networks.iter().find(|network| covers(network, address));
        if let Some(allowed) = entry(&self.allow) {
            return Ok(Some(allowed));
        }
        match entry(&self.deny) {
            Some(denied) => Err(denied),
            None if self.deny_all => Err(EVERYTHING),
            None => Ok(None),
        }
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
            hosts: hosts.iter().map(|&host| HostRule { host: host.to_owned(), headers: vec![] }).collect(),
            ..Rules::default()
        }
    }

    #[test]
    fn names_mean_what_they_say() {
        let allow = |names: &[&str], host: &str| rules(names, &[]).name_entry(host).is_some();
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
