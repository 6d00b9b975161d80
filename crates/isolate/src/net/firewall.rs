//! nftables: what sandboxes may reach. One table per instance; every rule starts from the interface a packet came in on,
//! so nothing a sandbox writes into a packet chooses its rule.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::gate::{Gate, Room, Rules};
use super::policy::{MOST_CONNECTIONS, Place};
use super::resolver::Servers;
use super::{Addresses, GUARDED_MARK, SLOTS_PER_INSTANCE};
use crate::{Error, NetworkPolicy, Record, Result};

/// Never reachable, whatever the policy says: private, shared, loopback, link-local (with cloud metadata), multicast and
/// reserved ranges.
const BLOCKED: &str = "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, \
                       192.168.0.0/16, 224.0.0.0/4, 240.0.0.0/4";

/// Denials of one sandbox that are answered; further ones are dropped.
const ANSWERS: &str = "200/second burst 1000 packets";

/// The instance's table.
#[derive(Debug)]
pub(crate) struct Firewall {
    table: String,
    addresses: Addresses,
    resolvers: Vec<Ipv4Addr>,
    /// Ways out by name, by slot.
    gates: Mutex<HashMap<u32, Gate>>,
    room: Room,
}

impl Firewall {
    /// Puts the table in place, replacing an earlier server's, and lets the host forward packets. Sandboxes that an earlier
    /// server left, `held`, have their policies from the first moment; what passes by name waits for [`Firewall::set`].
    pub(crate) async fn install(
        instance: u32,
        addresses: Addresses,
        dns: Option<Vec<IpAddr>>,
        held: &[Record],
    ) -> Result<Self> {
        let resolvers = match dns {
            Some(list) => only_v4(list),
            None => host_resolvers(),
        };
        let firewall = Self::new(table(instance), addresses, resolvers);
        let forwarding = "/proc/sys/net/ipv4/ip_forward";
        std::fs::write(forwarding, "1").map_err(|source| Error::Path {
            action: "write",
            path: forwarding.into(),
            source,
        })?;
        let mut script = firewall.ruleset();
        for record in held.iter().filter(|record| record.network != NetworkPolicy::default()) {
            script += &firewall.place(record.slot).script(&record.network, None)?;
        }
        nft(&script).await?;
        Ok(firewall)
    }

    fn new(table: String, addresses: Addresses, resolvers: Vec<Ipv4Addr>) -> Self {
        Self { table, addresses, resolvers, gates: Mutex::default(), room: Room::new() }
    }

    /// Takes the table of an instance away; none is fine.
    pub(crate) async fn remove(instance: u32) -> Result<()> {
        let table = table(instance);
        nft(&format!("table inet {table} {{}}\ndelete table inet {table}\n")).await
    }

    /// The whole table. A policy comes before connections that are there already, so that a new one cuts them.
    ///
    /// What is denied is answered, so that no program waits for it, and in a way that says nothing of the host: whether an
    /// address is the host's, another sandbox's or nobody's, TCP is reset in its name, and everything else is prohibited in
    /// the name of the sandbox's gateway. Therefore what is not TCP is denied before it is routed: the kernel would answer
    /// in the name of an address that it finds to be the host's own. Answers go to no forged source, for these are dropped
    /// first, and are limited, because the kernel has one limit of such messages for everybody.
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
  map translations {{ type ifname : verdict; }}
  map gates {{ type ifname : verdict; }}
  set connections {{ type ifname; size {SLOTS_PER_INSTANCE}; flags dynamic; }}
  set answers {{ type ifname; size {SLOTS_PER_INSTANCE}; flags dynamic; }}
  chain deny {{
    add @answers {{ iifname limit rate over {ANSWERS} }} drop
    meta l4proto tcp reject with tcp reset
    reject with icmp type admin-prohibited
  }}
  chain arrival {{
    type filter hook prerouting priority dstnat + 10; policy accept;
    iifname {mine} fib saddr . iif oif missing drop
    iifname {mine} meta nfproto ipv4 meta l4proto != tcp fib daddr type local goto deny
  }}
  chain input {{
    type filter hook input priority -10; policy accept;
    iifname {mine} meta nfproto ipv6 drop
    iifname vmap @gates
    iifname {mine} goto deny
  }}
  chain forward {{
    type filter hook forward priority -10; policy accept;
    iifname {mine} meta nfproto ipv6 drop
    iifname {mine} oifname \"scv*\" goto deny
    iifname vmap @policies
    iifname {mine} ct state established,related accept
    iifname {mine} ct state new add @connections {{ iifname ct count over {MOST_CONNECTIONS} }} drop
    {dns_out}
    iifname {mine} ip daddr @blocked goto deny
    iifname {mine} accept
    oifname {mine} ct state established,related accept
    oifname {mine} drop
  }}
  chain prerouting {{
    type nat hook prerouting priority dstnat; policy accept;
    iifname vmap @translations
    {dns}
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {range} oifname != \"scv*\" masquerade
  }}
  chain output {{
    type filter hook output priority -10; policy accept;
    meta mark != {GUARDED_MARK} accept
    fib daddr type != unicast reject
    oifname \"scv*\" reject
    ip daddr @blocked reject
  }}
}}
"
        )
    }

    /// Applies a policy to a slot, in one step; the open policy removes what was there.
    pub(crate) async fn set(&self, slot: u32, policy: &NetworkPolicy) -> Result<()> {
        let place = self.place(slot);
        let Some(rules) = self.gate_rules(policy) else {
            nft(&place.script(policy, None)?).await?;
            self.gates().remove(&slot);
            return Ok(());
        };
        let port = self.gates().get(&slot).map(Gate::port);
        if let Some(port) = port {
            nft(&place.script(policy, Some(port))?).await?;
            if let Some(gate) = self.gates().get(&slot) {
                gate.set(rules);
            }
            return Ok(());
        }
        let guest = self.addresses.guest(slot);
        let gate = Gate::open(place.gateway, guest, rules, &self.room).await.map_err(|source| {
            Error::Kernel { action: format!("listen on {} for connections by name", place.gateway), source }
        })?;
        nft(&place.script(policy, Some(gate.port()))?).await?;
        self.gates().insert(slot, gate);
        Ok(())
    }

    fn place(&self, slot: u32) -> Place<'_> {
        Place {
            table: &self.table,
            slot,
            link: self.addresses.link(slot),
            gateway: self.addresses.gateway(slot),
            resolvers: &self.resolvers,
        }
    }

    /// What a sandbox's gate goes by; it has none without names.
    fn gate_rules(&self, policy: &NetworkPolicy) -> Option<Rules> {
        let servers = match &policy.dns {
            Some(list) if !list.is_empty() => Servers::Guarded(list.clone()),
            _ => Servers::Trusted(self.resolvers.clone()),
        };
        let names = policy.allow_names.clone();
        (!names.is_empty()).then_some(Rules { names, servers })
    }

    fn gates(&self) -> MutexGuard<'_, HashMap<u32, Gate>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn table(instance: u32) -> String {
    format!("sandcove{instance}")
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

    fn firewall(resolvers: &[[u8; 4]]) -> Firewall {
        let addresses = Addresses::new("10.213.0.0/16", 0).unwrap();
        Firewall::new("t".into(), addresses, resolvers.iter().map(|&address| address.into()).collect())
    }

    #[test]
    fn addresses_that_others_on_the_host_translate_stay_blocked() {
        let firewall = firewall(&[[10, 0, 0, 53]]);
        let ruleset = firewall.ruleset();
        let translated: Vec<&str> = ruleset.lines().filter(|line| line.contains("ct status dnat")).collect();
        assert_eq!(translated.len(), 1);
        assert!(translated[0].contains("ip daddr 10.0.0.53") && translated[0].contains("th dport 53"));
    }

    #[test]
    fn a_policy_comes_before_connections_that_are_there() {
        let firewall = firewall(&[]);
        let ruleset = firewall.ruleset();
        let place = |text: &str| ruleset.find(text).unwrap();
        assert!(place("vmap @policies") < place("ct state established"));
        assert!(place("oifname \"scv*\" goto deny") < place("vmap @policies"));
    }

    #[test]
    fn forged_sources_are_dropped_before_anything_is_answered() {
        let ruleset = firewall(&[]).ruleset();
        let arrival = ruleset.split("chain arrival").nth(1).unwrap();
        assert!(arrival.find("fib saddr . iif oif missing drop") < arrival.find("goto deny"));
        // Before every other filter of the table.
        assert!(arrival.contains("hook prerouting"));
        let deny = ruleset.split("chain deny").nth(1).unwrap();
        assert!(deny.find("limit rate over") < deny.find("reject"));
    }

    #[test]
    fn a_stub_resolver_on_the_host_is_not_handed_to_sandboxes() {
        assert!(only_v4(nameservers("nameserver 127.0.0.53\noptions edns0\n")).is_empty());
        assert_eq!(only_v4(nameservers("nameserver 9.9.9.9\n")), [Ipv4Addr::new(9, 9, 9, 9)]);
    }
}
