//! The nftables rules of one sandbox's network policy: a chain for outgoing packets, one for the translation of
//! destinations, and one for the sandbox's egress proxy, each found by the interface a packet arrives at.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::{Error, NetworkPolicy, Rates, Result};

/// Maps of the table, and the prefixes of the chains they lead to; the slot's number follows.
const CHAINS: [(&str, &str); 5] =
    [("policies", "p"), ("translations", "n"), ("proxies", "e"), ("uploads", "u"), ("downloads", "d")];
/// Minimum number of bytes that may pass at once, beside those of one second, which nftables adds: a few of the largest packets.
const MIN_BURST: u64 = 256 << 10;
/// Maximum burst, bytes.
const MAX_BURST: u64 = 64 << 20;
/// Connections whose requests may get headers although no name is allowed: those of the usual ports.
const WEB: &str = "tcp dport { 80, 443 }";
const DNS: &str = "meta l4proto { tcp, udp } th dport 53";

/// The slot that rules are written for.
pub(super) struct RuleTarget<'a> {
    pub(super) table: &'a str,
    pub(super) slot: u32,
    pub(super) link: String,
    /// Address of the host's end of the network pair, which is also the sandbox's name server.
    pub(super) gateway: Ipv4Addr,
    /// Name servers that the table's own rules forward to.
    pub(super) resolvers: &'a [Ipv4Addr],
    /// Maximum number of connections with the outside.
    pub(super) connections: u32,
}

impl RuleTarget<'_> {
    /// Writes the script that replaces the rules by those of `policy`, in one transaction. `proxy` is the port of the
    /// egress proxy.
    pub(super) fn script(&self, policy: &NetworkPolicy, proxy: Option<u16>) -> Result<String> {
        let mut script = String::new();
        let [uploads, downloads] = rates(policy.rates);
        let rules =
            [self.policy(policy)?, self.translations(policy, proxy)?, self.egress(proxy), uploads, downloads];
        for ((map, prefix), rules) in CHAINS.iter().zip(rules) {
            let Self { table, slot, link, .. } = self;
            let (chain, element) = (format!("{prefix}{slot}"), format!("\"{link}\" : jump {prefix}{slot}"));
            // Adding before deleting, because there may be no chain yet.
            let _ = write!(
                script,
                "add chain inet {table} {chain}\n\
                 add element inet {table} {map} {{ {element} }}\n\
                 delete element inet {table} {map} {{ \"{link}\" }}\n\
                 delete chain inet {table} {chain}\n"
            );
            if rules.is_empty() {
                continue;
            }
            let _ = writeln!(script, "add chain inet {table} {chain}");
            for rule in rules {
                let _ = writeln!(script, "add rule inet {table} {chain} {rule}");
            }
            let _ = writeln!(script, "add element inet {table} {map} {{ {element} }}");
        }
        Ok(script)
    }

    /// Rules for outgoing packets.
    fn policy(&self, policy: &NetworkPolicy) -> Result<Vec<String>> {
        let mut rules = self.name_servers(policy);
        if policy.upstream.is_some() {
            // Nothing is sent past the proxy, even while no listener takes connections to it. Queries are translated.
            rules.push("meta l4proto tcp ct status & dnat == 0 goto deny".into());
        }
        for (networks, verdict) in [(&policy.allow_out, "return"), (&policy.deny_out, "goto deny")] {
            for network in networks {
                rules.push(format!("ip daddr {} {verdict}", checked(network)?));
            }
        }
        if policy.deny_all {
            rules.push("goto deny".into());
        }
        Ok(rules)
    }

    /// Rules for destinations: DNS queries go to the name servers, TCP that no other rule covers goes to the egress proxy.
    fn translations(&self, policy: &NetworkPolicy, proxy: Option<u16>) -> Result<Vec<String>> {
        let Some(port) = proxy else { return Ok(Vec::new()) };
        let gateway = self.gateway;
        let mut rules = Vec::new();
        match policy.dns.as_deref() {
            None => {}
            // Untranslated queries get no answer.
            Some([]) => rules.push(format!("ip daddr {gateway} {DNS} accept")),
            Some([server]) => rules.push(format!("ip daddr {gateway} {DNS} dnat ip to {server}")),
            Some(several) => {
                let map: Vec<_> =
                    several.iter().enumerate().map(|(place, server)| format!("{place} : {server}")).collect();
                let (count, map) = (several.len(), map.join(", "));
                rules.push(format!(
                    "ip daddr {gateway} {DNS} dnat ip to numgen inc mod {count} map {{ {map} }}"
                ));
            }
        }
        rules.push(format!("ip daddr {gateway} return"));
        rules.push("ip daddr @blocked return".into());
        rules.extend(self.name_servers(policy));
        let taken = match policy {
            NetworkPolicy { upstream: Some(_), .. } => Some("meta l4proto tcp"),
            NetworkPolicy { hosts, .. } => (!hosts.is_empty()).then_some(WEB),
        };
        let web = taken.map(|taken| format!("{taken} redirect to :{port}"));
        for network in &policy.allow_out {
            let network = checked(network)?;
            rules.extend(web.iter().map(|web| format!("ip daddr {network} {web}")));
            rules.push(format!("ip daddr {network} return"));
        }
        if !policy.allow_names.is_empty() {
            rules.push(format!("meta nfproto ipv4 meta l4proto tcp redirect to :{port}"));
        } else if let Some(web) = web.filter(|_| !policy.deny_all) {
            // What is denied is not translated, so that it is denied as ever.
            for network in &policy.deny_out {
                rules.push(format!("ip daddr {} return", checked(network)?));
            }
            rules.push(format!("meta nfproto ipv4 {web}"));
        }
        Ok(rules)
    }

    /// Rules that allow DNS queries: host names are of no use to a program that cannot resolve them.
    fn name_servers(&self, policy: &NetworkPolicy) -> Vec<String> {
        match &policy.dns {
            _ if policy.allow_names.is_empty() => Vec::new(),
            Some(list) => {
                // Beside queries, connections to them go through a proxy as all others do.
                let queries = if policy.upstream.is_some() { format!(" {DNS}") } else { String::new() };
                list.iter().map(|server| format!("ip daddr {server}{queries} return")).collect()
            }
            // Only the resolver that the table's own rule forwards to.
            None => self
                .resolvers
                .iter()
                .take(1)
                .map(|server| format!("ip daddr {server} {DNS} return"))
                .collect(),
        }
    }

    /// Rules that allow connections redirected to the egress proxy, the only service of the host that a sandbox reaches.
    fn egress(&self, proxy: Option<u16>) -> Vec<String> {
        let Some(port) = proxy else { return Vec::new() };
        let Self { gateway, connections, .. } = self;
        vec![
            format!("ct state new add @connections {{ iifname ct count over {connections} }} drop"),
            format!("ip daddr {gateway} tcp dport {port} ct status dnat accept"),
        ]
    }
}

/// Rules that drop what a sandbox sends and receives beyond its limits.
fn rates(rates: Rates) -> [Vec<String>; 2] {
    let bytes = rates.bytes.map(|rate| {
        let burst = (rate / 4).clamp(MIN_BURST, MAX_BURST);
        format!("limit rate over {rate} bytes/second burst {burst} bytes drop")
    });
    let connections = rates.connections.map(|rate| {
        let burst = rate.saturating_mul(2);
        format!("ct state new limit rate over {rate}/second burst {burst} packets drop")
    });
    [connections.into_iter().chain(bytes.clone()).collect(), bytes.into_iter().collect()]
}

/// Checks that `network` is an address or a network, because nothing else may get into the script.
fn checked(network: &str) -> Result<&str> {
    let (address, length) = network.split_once('/').unwrap_or((network, "32"));
    let fine = address.parse::<Ipv4Addr>().is_ok() && length.parse::<u8>().is_ok_and(|length| length <= 32);
    if fine {
        Ok(network)
    } else {
        Err(Error::Kernel {
            action: format!("use `{network}` in a network policy: not an IPv4 address or network"),
            source: std::io::ErrorKind::InvalidInput.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use sandcove_egress::{HostRule, Upstream};

    use super::*;

    fn target(resolvers: &[Ipv4Addr]) -> RuleTarget<'_> {
        RuleTarget {
            table: "t",
            slot: 7,
            link: "scv0-7".into(),
            gateway: Ipv4Addr::new(10, 213, 0, 29),
            resolvers,
            connections: 4096,
        }
    }

    #[test]
    fn a_policy_cannot_carry_commands() {
        for bad in ["0.0.0.0/0 accept", "1.2.3.4; flush ruleset", "example.com", "1.2.3.4/33", ""] {
            assert!(checked(bad).is_err(), "{bad}");
        }
        assert!(checked("10.0.0.0/8").is_ok() && checked("1.1.1.1").is_ok());
        let names = vec!["a; flush ruleset".to_owned()];
        let policy = NetworkPolicy { deny_all: true, allow_names: names, ..NetworkPolicy::default() };
        assert!(!target(&[]).script(&policy, Some(1)).unwrap().contains("flush"));
    }

    #[test]
    fn the_open_policy_leaves_nothing() {
        let script = target(&[]).script(&NetworkPolicy::default(), None).unwrap();
        assert_eq!(script.matches("add chain").count(), script.matches("delete chain").count());
        assert_eq!(script.matches("add element").count(), script.matches("delete element").count());
        assert!(!script.contains("add rule"));
    }

    #[test]
    fn for_headers_the_web_goes_to_the_egress_proxy_as_far_as_it_is_open() {
        let hosts = vec![HostRule { host: "example.com".into(), headers: vec![] }];
        let rules = |policy: NetworkPolicy| {
            let script = target(&[]).script(&policy, Some(4000)).unwrap();
            let rules = script.lines().filter_map(|line| line.strip_prefix("add rule inet t n7 "));
            rules.skip(2).map(str::to_owned).collect::<Vec<_>>()
        };
        let open = NetworkPolicy {
            hosts: hosts.clone(),
            deny_out: vec!["9.9.9.9".into()],
            ..NetworkPolicy::default()
        };
        assert_eq!(
            rules(open),
            ["ip daddr 9.9.9.9 return", "meta nfproto ipv4 tcp dport { 80, 443 } redirect to :4000"]
        );
        let closed = NetworkPolicy {
            hosts,
            deny_all: true,
            allow_out: vec!["8.8.8.0/24".into()],
            ..NetworkPolicy::default()
        };
        assert_eq!(
            rules(closed),
            ["ip daddr 8.8.8.0/24 tcp dport { 80, 443 } redirect to :4000", "ip daddr 8.8.8.0/24 return"]
        );
    }

    fn upstream() -> Upstream {
        Upstream { host: "proxy.example.com".into(), port: 1080, username: None, password: None, tls: None }
    }

    fn rules_of(chain: &str, policy: &NetworkPolicy, proxy: Option<u16>) -> Vec<String> {
        let script = target(&[Ipv4Addr::new(9, 9, 9, 9)]).script(policy, proxy).unwrap();
        let begin = format!("add rule inet t {chain} ");
        script.lines().filter_map(|line| line.strip_prefix(&begin)).map(str::to_owned).collect()
    }

    #[test]
    fn with_a_proxy_no_tcp_is_sent_past_it() {
        let open = NetworkPolicy {
            upstream: Some(Box::new(upstream())),
            deny_out: vec!["9.0.0.0/8".into()],
            ..NetworkPolicy::default()
        };
        let all = "meta nfproto ipv4 meta l4proto tcp redirect to :4000";
        assert_eq!(rules_of("n7", &open, Some(4000))[2..], ["ip daddr 9.0.0.0/8 return", all]);
        // While there is no listener, too.
        let past = "meta l4proto tcp ct status & dnat == 0 goto deny";
        assert_eq!(rules_of("p7", &open, None)[0], past);
        let narrow = NetworkPolicy {
            upstream: Some(Box::new(upstream())),
            deny_all: true,
            allow_out: vec!["8.8.8.0/24".into()],
            allow_names: vec!["example.com".into()],
            dns: Some(vec![Ipv4Addr::new(1, 1, 1, 1)]),
            ..NetworkPolicy::default()
        };
        let query = "ip daddr 1.1.1.1 meta l4proto { tcp, udp } th dport 53 return";
        let allowed = "ip daddr 8.8.8.0/24";
        assert_eq!(
            rules_of("n7", &narrow, Some(4000))[3..],
            [
                query,
                &format!("{allowed} meta l4proto tcp redirect to :4000"),
                &format!("{allowed} return"),
                all
            ]
        );
        assert_eq!(
            rules_of("p7", &narrow, Some(4000)),
            [query, past, &format!("{allowed} return"), "goto deny"]
        );
    }

    #[test]
    fn traffic_is_limited_in_both_directions() {
        let rates = Rates { bytes: Some(1_000_000), connections: Some(50) };
        let policy = NetworkPolicy { rates, ..NetworkPolicy::default() };
        let bytes = "limit rate over 1000000 bytes/second burst 262144 bytes drop";
        let connections = "ct state new limit rate over 50/second burst 100 packets drop";
        assert_eq!(rules_of("u7", &policy, None), [connections, bytes]);
        assert_eq!(rules_of("d7", &policy, None), [bytes]);
    }

    #[test]
    fn only_what_no_address_rule_covers_goes_to_the_egress_proxy() {
        let policy = NetworkPolicy {
            deny_all: true,
            allow_out: vec!["8.8.8.0/24".into()],
            allow_names: vec!["example.com".into()],
            ..NetworkPolicy::default()
        };
        let script = target(&[Ipv4Addr::new(9, 9, 9, 9)]).script(&policy, Some(4000)).unwrap();
        let translations: Vec<&str> =
            script.lines().filter_map(|line| line.strip_prefix("add rule inet t n7 ")).collect();
        assert_eq!(
            translations,
            [
                "ip daddr 10.213.0.29 return",
                "ip daddr @blocked return",
                "ip daddr 9.9.9.9 meta l4proto { tcp, udp } th dport 53 return",
                "ip daddr 8.8.8.0/24 return",
                "meta nfproto ipv4 meta l4proto tcp redirect to :4000",
            ]
        );
    }
}
