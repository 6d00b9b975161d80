//! What nftables is told of one sandbox's policy: a chain for what it sends out, one for what becomes of destinations on the
//! way, and one for its way out by name, each found by the interface a packet comes in on.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::{Error, NetworkPolicy, Result};

/// Connections a sandbox may have with the outside at once. The kernel's table of them is the host's own: full, it would
/// cut off everybody.
pub(super) const MOST_CONNECTIONS: u32 = 4096;

/// The maps of the table, and what the chains that they lead to are called, before the slot's number.
const CHAINS: [(&str, &str); 3] = [("policies", "p"), ("translations", "n"), ("gates", "g")];
const DNS: &str = "meta l4proto { tcp, udp } th dport 53";

/// Whose rules they are.
pub(super) struct Place<'a> {
    pub(super) table: &'a str,
    pub(super) slot: u32,
    pub(super) link: String,
    /// The host's end of its network pair, and the name server it knows.
    pub(super) gateway: Ipv4Addr,
    /// Whom the table's own rules ask.
    pub(super) resolvers: &'a [Ipv4Addr],
}

impl Place<'_> {
    /// Replaces the rules by those of `policy`, in one transaction. `gate` is the port of its way out by name.
    pub(super) fn script(&self, policy: &NetworkPolicy, gate: Option<u16>) -> Result<String> {
        let mut script = String::new();
        let rules = [self.policy(policy)?, self.translations(policy, gate)?, self.gate(gate)];
        for ((map, prefix), rules) in CHAINS.iter().zip(rules) {
            let Self { table, slot, link, .. } = self;
            let (chain, element) = (format!("{prefix}{slot}"), format!("\"{link}\" : jump {prefix}{slot}"));
            // Adding before deleting: there may be nothing yet.
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

    /// What it may send out.
    fn policy(&self, policy: &NetworkPolicy) -> Result<Vec<String>> {
        let mut rules = self.name_servers(policy);
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

    /// Where its questions for names go, and what goes through its gate: TCP that nothing else is said of.
    fn translations(&self, policy: &NetworkPolicy, gate: Option<u16>) -> Result<Vec<String>> {
        let Some(port) = gate else { return Ok(Vec::new()) };
        let gateway = self.gateway;
        let mut rules = Vec::new();
        match policy.dns.as_deref() {
            None => {}
            // Left as they are, nobody answers them.
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
        for network in &policy.allow_out {
            rules.push(format!("ip daddr {} return", checked(network)?));
        }
        rules.push(format!("meta nfproto ipv4 meta l4proto tcp redirect to :{port}"));
        Ok(rules)
    }

    /// Lets through what is for name servers: names are of no use to a program that cannot ask for their addresses.
    fn name_servers(&self, policy: &NetworkPolicy) -> Vec<String> {
        match &policy.dns {
            _ if policy.allow_names.is_empty() => Vec::new(),
            Some(list) => list.iter().map(|server| format!("ip daddr {server} return")).collect(),
            // Only those that the table's own rule leads to.
            None => self
                .resolvers
                .iter()
                .take(1)
                .map(|server| format!("ip daddr {server} {DNS} return"))
                .collect(),
        }
    }

    /// The one service of the host that it reaches, and only by being sent there.
    fn gate(&self, gate: Option<u16>) -> Vec<String> {
        let Some(port) = gate else { return Vec::new() };
        vec![
            format!("ct state new add @connections {{ iifname ct count over {MOST_CONNECTIONS} }} drop"),
            format!("ip daddr {} tcp dport {port} ct status dnat accept", self.gateway),
        ]
    }
}

/// Only an address or a network may reach the script.
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
    use super::*;

    fn place(resolvers: &[Ipv4Addr]) -> Place<'_> {
        Place {
            table: "t",
            slot: 7,
            link: "scv0-7".into(),
            gateway: Ipv4Addr::new(10, 213, 0, 29),
            resolvers,
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
        assert!(!place(&[]).script(&policy, Some(1)).unwrap().contains("flush"));
    }

    #[test]
    fn the_open_policy_leaves_nothing() {
        let script = place(&[]).script(&NetworkPolicy::default(), None).unwrap();
        assert_eq!(script.matches("add chain").count(), script.matches("delete chain").count());
        assert_eq!(script.matches("add element").count(), script.matches("delete element").count());
        assert!(!script.contains("add rule"));
    }

    #[test]
    fn only_what_no_address_rule_speaks_of_goes_through_the_gate() {
        let policy = NetworkPolicy {
            deny_all: true,
            allow_out: vec!["8.8.8.0/24".into()],
            allow_names: vec!["example.com".into()],
            ..NetworkPolicy::default()
        };
        let script = place(&[Ipv4Addr::new(9, 9, 9, 9)]).script(&policy, Some(4000)).unwrap();
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
