//! Network rules of a sandbox, for traffic in both directions: checked here, enforced by `isolate` and the proxy (contract:
//! control-plane, section 6.3).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use sandcove_isolate::{NetworkPolicy, Rates, Upstream};
use sandcove_wire::api::network::{Network, NetworkUpdate};
use serde::{Deserialize, Serialize};

use super::limits::{MASK_BYTES, NETWORK_ENTRIES, NETWORK_ENTRY_BYTES};
use super::{egress_proxy, header_rules};
use crate::Error;

/// The range of all addresses; in `denyOut` it denies everything that is not allowed.
const EVERYTHING: &str = "0.0.0.0/0";
const MAX_NAME_SERVERS: usize = 10;

/// Checked network rules.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkRules {
    /// The rules as the client gave them, for answers.
    pub given: Option<Network>,
    /// The flag as the client gave it, for answers.
    pub allow_internet_access: Option<bool>,
    /// The proxy that connections go through, with its password sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Upstream>,
}

/// A replacement of the rules for outgoing traffic.
#[derive(Debug, Clone, Default)]
pub struct NetworkChange {
    /// The rules as the client gave them.
    pub update: NetworkUpdate,
    /// The proxy that they name, with its password sealed.
    pub proxy: Option<Upstream>,
}

/// The reason for which network rules are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNetwork {
    /// A denied entry is neither a network nor an address.
    #[error("invalid denied CIDR '{0}'")]
    Denied(String),
    /// An allowed entry is neither a network, an address nor a name.
    #[error("invalid allowed address '{0}'")]
    Allowed(String),
    /// An entry is the unspecified address.
    #[error("unspecified address '{0}' is not allowed")]
    Unspecified(String),
    /// Names are allowed without denying all addresses; the rules for names apply only then.
    #[error(
        "when specifying allowed domains in allow out, you must include '0.0.0.0/0' in deny out to block all other traffic"
    )]
    NameWithoutDenyAll,
    /// A list has too many entries, or an entry is too long.
    #[error(
        "network rules have at most {NETWORK_ENTRIES} entries of {NETWORK_ENTRY_BYTES} bytes in each list: '{list}' has {entries}, the longest of {bytes} bytes"
    )]
    TooMany {
        /// Name of the list.
        list: &'static str,
        /// Number of entries.
        entries: usize,
        /// Length of the longest entry, bytes.
        bytes: usize,
    },
    /// The masked host cannot be a `Host` header.
    #[error("mask request host '{0}' is not valid")]
    MaskHost(String),
    /// A name server is not an IPv4 address, or there are too many.
    #[error("invalid DNS servers: at most {MAX_NAME_SERVERS} IPv4 addresses are allowed")]
    NameServers,
    /// The agent's port is named as an HTTPS port, which it never is.
    #[error("port 49983 cannot be an HTTPS port")]
    AgentPort,
    /// A rule for headers is not valid, for this reason.
    #[error("invalid network rules: {0}")]
    Rules(String),
    /// The egress proxy is not valid, for this reason.
    #[error("invalid egress proxy: {0}")]
    EgressProxy(String),
}

impl From<InvalidNetwork> for Error {
    fn from(invalid: InvalidNetwork) -> Self {
        Self::Refused(invalid.to_string())
    }
}

impl NetworkRules {
    /// Checks the rules of a new sandbox.
    pub fn new(given: Option<Network>, allow_internet_access: Option<bool>) -> Result<Self, InvalidNetwork> {
        if let Some(network) = &given {
            check(network)?;
        }
        Ok(Self { given, allow_internet_access, proxy: None })
    }

    /// Sets the proxy. What clients gave of it is not kept: it has a password in it.
    pub fn with_proxy(mut self, proxy: Option<Upstream>) -> Self {
        if let Some(given) = &mut self.given {
            given.egress_proxy = proxy.as_ref().map(egress_proxy::shown);
        }
        Self { proxy, ..self }
    }

    /// The rules after an update, which replaces those for outgoing traffic as a whole and keeps those for incoming.
    pub fn replaced(&self, change: NetworkChange) -> Result<Self, InvalidNetwork> {
        let NetworkChange { update, proxy } = change;
        let kept = self.given.clone().unwrap_or_default();
        let network = Network {
            allow_out: update.allow_out,
            deny_out: update.deny_out,
            dns_servers: update.dns_servers,
            egress_proxy: None,
            rules: update.rules,
            ..kept
        };
        Ok(Self::new(Some(network), update.allow_internet_access)?.with_proxy(proxy))
    }

    /// The policy that `isolate` enforces, without secrets and without what belongs to the sandbox.
    pub fn policy(&self) -> NetworkPolicy {
        let network = self.given.as_ref();
        let deny: &[String] = network.and_then(|n| n.deny_out.as_deref()).unwrap_or_default();
        let allow: &[String] = network.and_then(|n| n.allow_out.as_deref()).unwrap_or_default();
        let (ranges, names): (Vec<_>, Vec<_>) = allow.iter().partition(|entry| parse_range(entry).is_some());
        // Name servers are for allowed names, and change nothing without them.
        let dns = network.and_then(|n| n.dns_servers.as_deref()).filter(|_| !names.is_empty());
        // Sandboxes have no IPv6 to the outside.
        let is_v4 = |entry: &&String| parse_range(entry).is_some_and(|(address, _)| address.is_ipv4());
        NetworkPolicy {
            deny_all: self.allow_internet_access == Some(false) || deny.iter().any(|d| d == EVERYTHING),
            allow_out: ranges.into_iter().filter(is_v4).cloned().collect(),
            deny_out: deny.iter().filter(|d| *d != EVERYTHING).filter(is_v4).cloned().collect(),
            allow_names: names.into_iter().map(|name| name.to_ascii_lowercase()).collect(),
            dns: dns.map(|servers| servers.iter().filter_map(|server| server.parse().ok()).collect()),
            // They were checked when they were given.
            hosts: network
                .and_then(|n| n.rules.as_ref())
                .and_then(|rules| header_rules::checked(rules).ok())
                .unwrap_or_default(),
            secrets: BTreeMap::new(),
            identity: None,
            upstream: self.proxy.clone().map(Box::new),
            rates: Rates::default(),
        }
    }

    /// Whether ports other than the agent's need a token.
    pub fn is_private(&self) -> bool {
        self.given.as_ref().and_then(|n| n.allow_public_traffic) == Some(false)
    }

    /// Whether the service on `port` speaks TLS.
    pub fn speaks_tls(&self, port: u16) -> bool {
        self.given.as_ref().and_then(|n| n.https_ports.as_ref()).is_some_and(|ports| ports.contains(&port))
    }

    /// The masked `Host` header for the service on `port`, if there is a mask.
    pub fn masked_host(&self, port: u16) -> Option<String> {
        let mask = self.given.as_ref()?.mask_request_host.as_deref()?;
        Some(mask.replace("${PORT}", &port.to_string()))
    }
}

fn check(network: &Network) -> Result<(), InvalidNetwork> {
    network.rules.as_ref().map_or(Ok(Vec::new()), header_rules::checked)?;
    check_sizes(network)?;
    let deny: &[String] = network.deny_out.as_deref().unwrap_or_default();
    for entry in deny {
        let (address, prefix) = parse_range(entry).ok_or_else(|| InvalidNetwork::Denied(entry.clone()))?;
        if address.is_unspecified() && (prefix != 0 || address.is_ipv6()) {
            return Err(InvalidNetwork::Unspecified(entry.clone()));
        }
    }
    let denies_all = deny.iter().any(|entry| entry == EVERYTHING);
    for entry in network.allow_out.iter().flatten() {
        match parse_range(entry) {
            Some((address, prefix)) if address.is_unspecified() && (prefix != 0 || address.is_ipv6()) => {
                return Err(InvalidNetwork::Unspecified(entry.clone()));
            }
            Some(_) => {}
            None if !is_name_pattern(entry) => return Err(InvalidNetwork::Allowed(entry.clone())),
            None if !denies_all => return Err(InvalidNetwork::NameWithoutDenyAll),
            None => {}
        }
    }
    if let Some(servers) = &network.dns_servers
        && (servers.len() > MAX_NAME_SERVERS || servers.iter().any(|s| s.parse::<Ipv4Addr>().is_err()))
    {
        return Err(InvalidNetwork::NameServers);
    }
    if let Some(mask) = &network.mask_request_host
        && !is_host(&mask.replace("${PORT}", "80"))
    {
        return Err(InvalidNetwork::MaskHost(mask.clone()));
    }
    if network.https_ports.iter().flatten().any(|port| *port == sandcove_wire::boot::AGENT_PORT) {
        return Err(InvalidNetwork::AgentPort);
    }
    Ok(())
}

/// Checks how much there is of everything that is kept as it was given.
fn check_sizes(network: &Network) -> Result<(), InvalidNetwork> {
    let lists = [("allowOut", &network.allow_out), ("denyOut", &network.deny_out)];
    for (list, entries) in lists {
        let entries: &[String] = entries.as_deref().unwrap_or_default();
        let bytes = entries.iter().map(String::len).max().unwrap_or_default();
        if entries.len() > NETWORK_ENTRIES || bytes > NETWORK_ENTRY_BYTES {
            return Err(InvalidNetwork::TooMany { list, entries: entries.len(), bytes });
        }
    }
    let ports = network.https_ports.as_ref().map_or(0, Vec::len);
    if ports > NETWORK_ENTRIES {
        return Err(InvalidNetwork::TooMany { list: "httpsPorts", entries: ports, bytes: 2 });
    }
    match &network.mask_request_host {
        Some(mask) if mask.len() > MASK_BYTES => {
            Err(InvalidNetwork::MaskHost(mask.chars().take(MASK_BYTES).collect()))
        }
        _ => Ok(()),
    }
}

/// Parses `address` or `address/prefix`.
fn parse_range(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        Some(text) => text.parse().ok().filter(|p| *p <= max)?,
        None => max,
    };
    Some((address, prefix))
}

/// Whether a text is `name`, `*.name` or `*`.
fn is_name_pattern(text: &str) -> bool {
    text == "*" || is_name(text.strip_prefix("*.").unwrap_or(text))
}

/// Whether a text is `name` or `name:port`.
fn is_host(text: &str) -> bool {
    match text.rsplit_once(':') {
        Some((name, port)) => is_name(name) && port.parse::<u16>().is_ok(),
        None => is_name(text),
    }
}

pub(super) fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    // A mistyped address is not a name.
    let has_letter = text.bytes().any(|b| b.is_ascii_alphabetic());
    let is_address = text.parse::<IpAddr>().is_ok();
    text.len() <= 253 && (has_letter || is_address) && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> Result<NetworkRules, InvalidNetwork> {
        let list = |entries: &[&str]| Some(entries.iter().map(|&e| e.to_owned()).collect());
        let network = Network { allow_out: list(allow), deny_out: list(deny), ..Network::default() };
        NetworkRules::new(Some(network), None)
    }

    #[test]
    fn names_need_deny_all() {
        assert_eq!(rules(&["example.com"], &[]), Err(InvalidNetwork::NameWithoutDenyAll));
        assert_eq!(rules(&["*.example.com"], &["1.0.0.0/8"]), Err(InvalidNetwork::NameWithoutDenyAll));
        assert!(rules(&["example.com", "*.example.com", "*", "8.8.8.8"], &["0.0.0.0/0"]).is_ok());
    }

    #[test]
    fn only_networks_and_addresses_are_denied() {
        for bad in ["example.com", "1.2.3", "1.2.3.4/33", "x"] {
            assert_eq!(rules(&[], &[bad]), Err(InvalidNetwork::Denied(bad.into())));
        }
        for bad in ["0.0.0.0", "::", "::/0", "0:0::0/0"] {
            assert_eq!(rules(&[], &[bad]), Err(InvalidNetwork::Unspecified(bad.into())));
        }
        assert!(rules(&["10.0.0.0/8", "0.0.0.0/0"], &["0.0.0.0/0", "1.1.1.1", "::1"]).is_ok());
    }

    #[test]
    fn names_are_told_from_addresses() {
        let policy = rules(&["Example.com", "8.8.8.8"], &["0.0.0.0/0", "1.1.1.1", "::1"]).unwrap().policy();
        assert!(policy.deny_all);
        assert_eq!(policy.allow_out, ["8.8.8.8"]);
        assert_eq!(policy.allow_names, ["example.com"]);
        assert_eq!(policy.deny_out, ["1.1.1.1"]);
    }

    #[test]
    fn name_servers_count_only_with_names() {
        let with = |allow: &[&str]| {
            let network = rules(allow, &["0.0.0.0/0"]).unwrap().given.unwrap();
            let network = Network { dns_servers: Some(vec!["1.1.1.1".into()]), ..network };
            NetworkRules::new(Some(network), None).unwrap().policy().dns
        };
        assert_eq!(with(&["example.com"]), Some(vec![Ipv4Addr::new(1, 1, 1, 1)]));
        assert_eq!(with(&["8.8.8.8"]), None);
    }

    #[test]
    fn internet_access_false_denies_all_and_is_cleared_by_an_update() {
        let closed = NetworkRules::new(None, Some(false)).unwrap();
        assert!(closed.policy().deny_all);
        assert!(!closed.replaced(NetworkChange::default()).unwrap().policy().deny_all);
    }

    #[test]
    fn updates_keep_how_the_sandbox_is_reached() {
        let given = Network {
            allow_public_traffic: Some(false),
            mask_request_host: Some("localhost:${PORT}".into()),
            deny_out: Some(vec!["0.0.0.0/0".into()]),
            ..Network::default()
        };
        let rules = NetworkRules::new(Some(given), None).unwrap();
        let rules = rules.replaced(NetworkChange::default()).unwrap();
        assert!(rules.is_private());
        assert_eq!(rules.masked_host(8080).as_deref(), Some("localhost:8080"));
        assert!(!rules.policy().deny_all);
    }

    #[test]
    fn lists_have_an_end() {
        let many = vec!["1.1.1.1"; NETWORK_ENTRIES];
        assert!(rules(&many, &many).is_ok());
        let more = vec!["1.1.1.1"; NETWORK_ENTRIES + 1];
        let error = rules(&more, &[]).unwrap_err().to_string();
        assert!(error.contains("'allowOut' has 1001, the longest of 7 bytes"), "{error}");
        assert!(rules(&[], &more).is_err());
        assert!(matches!(rules(&[&"a.".repeat(200)], &["0.0.0.0/0"]), Err(InvalidNetwork::TooMany { .. })));
    }

    #[test]
    fn masks_must_be_hosts() {
        for (mask, ok) in [
            ("localhost:${PORT}", true),
            ("a.b", true),
            ("-https://abcd", false),
            ("", false),
            ("a b", false),
        ] {
            let network = Network { mask_request_host: Some(mask.into()), ..Network::default() };
            assert_eq!(NetworkRules::new(Some(network), None).is_ok(), ok, "{mask}");
        }
    }
}
