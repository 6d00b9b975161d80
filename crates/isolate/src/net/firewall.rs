//! nftables: what sandboxes may reach. One table per instance; every rule starts from the interface a packet came in on,
//! so nothing a sandbox writes into a packet chooses its rule.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::{Addresses, SLOTS_PER_INSTANCE};
use crate::{Error, NetworkPolicy, Result};

/// Never reachable, whatever the policy says: private, shared, loopback, link-local (with cloud metadata), multicast and
/// reserved ranges.
const BLOCKED: &str = "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, \
                       192.168.0.0/16, 224.0.0.0/4, 240.0.0.0/4";

/// Connections a sandbox may have with the outside at once. The kernel's table of them is the host's own: full, it would
/// cut off everybody.
const MOST_CONNECTIONS: u32 = 4096;

/// The instance's table.
#[derive(Debug)]
pub(crate) struct Firewall {
    table: String,
    addresses: Addresses,
    resolvers: Vec<Ipv4Addr>,
}

impl Firewall {
    /// Puts the table in place, replacing an earlier server's, and lets the host forward packets.
    pub(crate) async fn install(
        instance: u32,
        addresses: Addresses,
        dns: Option<Vec<IpAddr>>,
    ) -> Result<Self> {
        let resolvers = match dns {
            Some(list) => only_v4(list),
            None => host_resolvers(),
        };
        let firewall = Self { table: format!("sandcove{instance}"), addresses, resolvers };
        let forwarding = "/proc/sys/net/ipv4/ip_forward";
        std::fs::write(forwarding, "1").map_err(|source| Error::Path {
            action: "write",
            path: forwarding.into(),
            source,
        })?;
        nft(&firewall.ruleset()).await?;
        Ok(firewall)
    }

    /// Takes the table away; none is fine.
    pub(crate) async fn remove(&self) -> Result<()> {
        let table = &self.table;
        nft(&format!("table inet {table} {{}}\ndelete table inet {table}\n")).await
    }

    /// The whole table. A policy comes before connections that are there already, so that a new one cuts them.
    /// Adding before deleting makes the replacement one transaction that works the first time too.
    fn ruleset(&self) -> String {
        let Self { table, addresses, .. } = self;
        let (mine, range) = (format!("\"{}*\"", addresses.link_prefix()), addresses.range());
        let (mut dns, mut dns_out) = (String::new(), String::new());
        if let Some(resolver) = self.resolvers.first() {
            dns = format!(
                "iifname {mine} ip daddr {range} meta l4proto {{ tcp, udp }} th dport 53 dnat ip to {resolver}"
            );
            // Only what our own rule has sent there: the host may have others, as for the published ports of containers.
            dns_out = format!(
                "iifname {mine} ip daddr {resolver} meta l4proto {{ tcp, udp }} th dport 53 ct status dnat accept"
            );
        }
        format!(
            "table inet {table} {{}}
delete table inet {table}
table inet {table} {{
  set blocked {{ type ipv4_addr; flags interval; elements = {{ {BLOCKED} }} }}
  map policies {{ type ifname : verdict; }}
  set connections {{ type ifname; size {SLOTS_PER_INSTANCE}; flags dynamic; }}
  chain input {{
    type filter hook input priority -10; policy accept;
    iifname {mine} drop
  }}
  chain forward {{
    type filter hook forward priority -10; policy accept;
    iifname {mine} oifname \"scv*\" drop
    iifname {mine} meta nfproto ipv6 drop
    iifname {mine} fib saddr . iif oif missing drop
    iifname vmap @policies
    iifname {mine} ct state established,related accept
    iifname {mine} ct state new add @connections {{ iifname ct count over {MOST_CONNECTIONS} }} drop
    {dns_out}
    iifname {mine} ip daddr @blocked drop
    iifname {mine} accept
    oifname {mine} ct state established,related accept
    oifname {mine} drop
  }}
  chain prerouting {{
    type nat hook prerouting priority dstnat; policy accept;
    {dns}
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {range} oifname != \"scv*\" masquerade
  }}
}}
"
        )
    }

    /// Applies a policy to a slot; the open policy removes what was there.
    pub(crate) async fn set(&self, slot: u32, policy: &NetworkPolicy) -> Result<()> {
        let (table, link) = (&self.table, self.addresses.link(slot));
        let mut script = format!(
            "add chain inet {table} p{slot}\n\
             add element inet {table} policies {{ \"{link}\" : jump p{slot} }}\n\
             delete element inet {table} policies {{ \"{link}\" }}\n\
             delete chain inet {table} p{slot}\n"
        );
        if *policy != NetworkPolicy::default() {
            let _ = writeln!(script, "add chain inet {table} p{slot}");
            for (networks, verdict) in [(&policy.allow_out, "return"), (&policy.deny_out, "drop")] {
                for network in networks {
                    let network = checked(network)?;
                    let _ = writeln!(script, "add rule inet {table} p{slot} ip daddr {network} {verdict}");
                }
            }
            if policy.deny_all {
                let _ = writeln!(script, "add rule inet {table} p{slot} drop");
            }
            let _ = writeln!(script, "add element inet {table} policies {{ \"{link}\" : jump p{slot} }}");
        }
        nft(&script).await
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

fn only_v4(list: Vec<IpAddr>) -> Vec<Ipv4Addr> {
    list.into_iter()
        .filter_map(|address| match address {
            IpAddr::V4(v4) if !v4.is_loopback() => Some(v4),
            _ => None,
        })
        .collect()
}

/// The resolvers the host asks; one that only listens on the host's loopback has its own upstream list.
fn host_resolvers() -> Vec<Ipv4Addr> {
    for file in ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"] {
        let found = only_v4(nameservers(&std::fs::read_to_string(file).unwrap_or_default()));
        if !found.is_empty() {
            return found;
        }
    }
    vec![Ipv4Addr::new(8, 8, 8, 8)]
}

fn nameservers(text: &str) -> Vec<IpAddr> {
    text.lines().filter_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok()).collect()
}

async fn nft(script: &str) -> Result<()> {
    let failed = |reason: String| Error::Tool { tool: "nft", reason };
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(format!("{error} (install nftables)")))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(script.as_bytes()).await.map_err(|error| failed(error.to_string()))?;
    }
    let done = child.wait_with_output().await.map_err(|error| failed(error.to_string()))?;
    if done.status.success() {
        Ok(())
    } else {
        Err(failed(String::from_utf8_lossy(&done.stderr).trim().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_cannot_carry_commands() {
        for bad in ["0.0.0.0/0 accept", "1.2.3.4; flush ruleset", "example.com", "1.2.3.4/33", ""] {
            assert!(checked(bad).is_err(), "{bad}");
        }
        assert!(checked("10.0.0.0/8").is_ok() && checked("1.1.1.1").is_ok());
    }

    #[test]
    fn addresses_that_others_on_the_host_translate_stay_blocked() {
        let firewall = Firewall {
            table: "t".into(),
            addresses: Addresses::new("10.213.0.0/16", 0).unwrap(),
            resolvers: vec![Ipv4Addr::new(10, 0, 0, 53)],
        };
        let ruleset = firewall.ruleset();
        let translated: Vec<&str> = ruleset.lines().filter(|line| line.contains("ct status dnat")).collect();
        assert_eq!(translated.len(), 1);
        assert!(translated[0].contains("ip daddr 10.0.0.53") && translated[0].contains("th dport 53"));
    }

    #[test]
    fn a_policy_comes_before_connections_that_are_there() {
        let firewall = Firewall {
            table: "t".into(),
            addresses: Addresses::new("10.213.0.0/16", 0).unwrap(),
            resolvers: vec![],
        };
        let ruleset = firewall.ruleset();
        let place = |text: &str| ruleset.find(text).unwrap();
        assert!(place("vmap @policies") < place("ct state established"));
        assert!(place("oifname \"scv*\" drop") < place("vmap @policies"));
    }

    #[test]
    fn a_stub_resolver_on_the_host_is_not_handed_to_sandboxes() {
        assert!(only_v4(nameservers("nameserver 127.0.0.53\noptions edns0\n")).is_empty());
        assert_eq!(only_v4(nameservers("nameserver 9.9.9.9\n")), [Ipv4Addr::new(9, 9, 9, 9)]);
    }
}
