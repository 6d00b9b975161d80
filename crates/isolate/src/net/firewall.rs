//! The firewall of sandboxes, by nftables. Each instance has one table. Every rule starts from the interface a packet
//! arrives at, so that no content of a packet chooses its rule.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sandcove_egress::{AddressRules, Connection, NameServers, Rules};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::egress::{Egress, EgressSetup};
use super::links::CLOSED_GROUP;
use super::policy::RuleTarget;
use super::sockets::{GUARDED_MARK, RESOLVER_MARK};
use super::tracking::{MAX_LOOKUPS, QUERIES};
use super::{Addresses, SLOTS_PER_INSTANCE, forwarding, links, reserved, tracking};
use crate::{Error, NetworkPolicy, Record, Result};

/// Rate of denials to one sandbox that are answered; further ones are dropped.
const ANSWERS: &str = "200/second burst 1000 packets";

/// The table of an instance.
#[derive(Debug)]
pub(crate) struct Firewall {
    table: String,
    addresses: Addresses,
    resolvers: Vec<Ipv4Addr>,
    /// Maximum number of connections of a sandbox with the outside.
    connections: u32,
    /// Whether the kernel can forget some connections sooner than others.
    has_timeouts: bool,
    /// Interfaces of the host that forward packets because of this program.
    opened: BTreeSet<String>,
    /// Whether networks for documentation are the internet of this host.
    is_laboratory: bool,
    egress: Egress,
    /// Mark of sockets to the name servers.
    resolver_mark: u32,
    /// Ports of egress proxies, by slot.
    ports: Mutex<HashMap<u32, u16>>,
    /// Slots that have rules of their own, or may have some because setting them has failed.
    ruled: Mutex<HashSet<u32>>,
}

impl Firewall {
    /// Installs the table, replacing that of an earlier server, and enables packet forwarding on the host. The table is for
    /// `slots` sandboxes. The policies of an earlier server's sandboxes, `held`, apply from the first moment; their egress
    /// proxies wait for [`Firewall::set`].
    pub(crate) async fn install(
        instance: u32,
        addresses: Addresses,
        dns: Option<Vec<IpAddr>>,
        slots: u32,
        egress: EgressSetup,
        held: &[Record],
    ) -> Result<Self> {
        let resolvers = match dns {
            Some(list) => only_v4(list),
            None => host_resolvers(),
        };
        let mut firewall = Self::new(instance, addresses, resolvers, egress);
        if !tracking::is_loaded() {
            nft(&tracking::first_rule(&firewall.table)).await?;
        }
        firewall.connections = tracking::connections_of_each(slots);
        firewall.opened = forwarding::open().await?;
        firewall.is_laboratory = reserved::is_laboratory(links::default_gateway());
        let mut policies = String::new();
        for record in held.iter().filter(|record| record.has_rules()) {
            firewall.ruled().insert(record.slot);
            policies += &firewall.target(record.slot).script(&record.network, None)?;
        }
        if let Err(error) = nft(&(firewall.ruleset() + &policies)).await {
            tracing::debug!(%error, "the kernel may have no timeouts of single connections");
            firewall.has_timeouts = false;
            nft(&(firewall.ruleset() + &policies)).await?;
        }
        Ok(firewall)
    }

    fn new(instance: u32, addresses: Addresses, resolvers: Vec<Ipv4Addr>, egress: EgressSetup) -> Self {
        let resolver_mark = RESOLVER_MARK + instance;
        Self {
            table: table(instance),
            addresses,
            resolvers,
            connections: 0,
            has_timeouts: true,
            opened: BTreeSet::new(),
            is_laboratory: false,
            egress: Egress::new(egress, resolver_mark),
            resolver_mark,
            ports: Mutex::default(),
            ruled: Mutex::default(),
        }
    }

    /// Removes the table of an instance; a missing one is no error.
    pub(crate) async fn remove(instance: u32) -> Result<()> {
        let (table, opened) = (table(instance), forwarding::opened().await);
        nft(&format!("table inet {table} {{}}\ndelete table inet {table}\n")).await?;
        forwarding::close(&opened).await;
        Ok(())
    }

    /// Writes the whole table. A policy comes before established connections, so that a new policy cuts them.
    ///
    /// Denied packets are answered, so that programs do not wait, but the answers reveal nothing about the host.
    /// Whether an address belongs to the host, to another sandbox or to nobody, TCP is reset in the name of that
    /// address, and all else is prohibited in the name of the sandbox's gateway. Packets other than TCP are therefore
    /// denied before they are routed: the kernel would answer in the name of an address that belongs to the host.
    /// Packets with forged sources are dropped first, so no answer goes to them. Answers are limited, because the
    /// kernel has one limit of such messages for everybody.
    ///
    /// Adding before deleting makes the replacement one transaction that also works the first time.
    fn ruleset(&self) -> String {
        let Self { table, addresses, connections, resolver_mark, .. } = self;
        let (blocked, blocked6) = (reserved::v4_elements(self.is_laboratory), reserved::v6_elements());
        let opened: Vec<_> = self.opened.iter().map(|name| format!("\"{name}\"")).collect();
        // A set without elements has no such clause.
        let opened = match opened.is_empty() {
            true => String::new(),
            false => format!("elements = {{ {} }}", opened.join(", ")),
        };
        let set_opened = forwarding::SET;
        let (mine, range) = (format!("\"{}*\"", addresses.link_prefix()), addresses.range());
        let (mut dns, mut dns_out) = (String::new(), String::new());
        if let Some(resolver) = self.resolvers.first() {
            dns = format!(
                "iifname {mine} ip daddr {range} meta l4proto {{ tcp, udp }} th dport 53 dnat ip to {resolver}"
            );
            // Only what our own rule has translated: the host may have other rules, as for published ports of containers.
            dns_out = format!(
                "iifname {mine} ip daddr {resolver} meta l4proto {{ tcp, udp }} th dport 53 ct status dnat accept"
            );
        }
        let (timeouts, forget_queries) = match self.has_timeouts {
            true => (
                tracking::query_timeouts(),
                format!(
                    "iifname {mine} meta nfproto ipv4 udp dport 53 ct state new ct timeout set \"{QUERIES}\""
                ),
            ),
            false => Default::default(),
        };
        let resolvers: Vec<_> = self.resolvers.iter().map(Ipv4Addr::to_string).collect();
        let to_resolvers = match resolvers.is_empty() {
            true => String::new(),
            false => format!(
                "meta mark {resolver_mark} ip daddr {{ {} }} meta l4proto {{ tcp, udp }} th dport 53 accept",
                resolvers.join(", ")
            ),
        };
        format!(
            "table inet {table} {{}}
delete table inet {table}
table inet {table} {{
  set blocked {{ type ipv4_addr; flags interval; elements = {{ {blocked} }} }}
  set blocked6 {{ type ipv6_addr; flags interval; elements = {{ {blocked6} }} }}
  set {set_opened} {{ type ifname; {opened} }}
  map policies {{ type ifname : verdict; }}
  map translations {{ type ifname : verdict; }}
  map proxies {{ type ifname : verdict; }}
  map uploads {{ type ifname : verdict; }}
  map downloads {{ type ifname : verdict; }}
  set connections {{ type ifname; size {SLOTS_PER_INSTANCE}; flags dynamic; }}
  set lookups {{ type ifname; size {SLOTS_PER_INSTANCE}; flags dynamic; }}
  set answers {{ type ifname; size {SLOTS_PER_INSTANCE}; flags dynamic; }}
{timeouts}  chain deny {{
    add @answers {{ iifname limit rate over {ANSWERS} }} drop
    meta l4proto tcp reject with tcp reset
    reject with icmp type admin-prohibited
  }}
  chain arrival {{
    type filter hook prerouting priority dstnat + 10; policy accept;
    iifname {mine} fib saddr . iif oif missing drop
    {forget_queries}
    iifname vmap @uploads
    iifname {mine} meta nfproto ipv4 meta l4proto != tcp fib daddr type local goto deny
  }}
  chain input {{
    type filter hook input priority -10; policy accept;
    iifname {mine} meta nfproto ipv6 drop
    iifname vmap @proxies
    iifname {mine} goto deny
  }}
  chain forward {{
    type filter hook forward priority -10; policy accept;
    iifname {mine} meta nfproto ipv6 drop
    iifname {mine} oifname \"scv*\" goto deny
    iifname {mine} iifgroup {CLOSED_GROUP} goto deny
    iifname vmap @policies
    iifname {mine} ct state established,related accept
    iifname {mine} udp dport 53 ct state new add @lookups {{ iifname ct count over {MAX_LOOKUPS} }} drop
    iifname {mine} ct state new add @connections {{ iifname ct count over {connections} }} drop
    {dns_out}
    iifname {mine} ip daddr @blocked goto deny
    iifname {mine} accept
    oifname {mine} ct state established,related accept
    oifname {mine} drop
    iifname @{set_opened} oifname != \"scv*\" ct status snat accept
    iifname @{set_opened} oifname != \"scv*\" ct status dnat accept
    iifname @{set_opened} oifname != \"scv*\" drop
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
  chain departure {{
    type filter hook postrouting priority 300; policy accept;
    oifname vmap @downloads
  }}
  chain output {{
    type filter hook output priority -10; policy accept;
    {to_resolvers}
    meta mark {resolver_mark} reject
    meta mark != {GUARDED_MARK} accept
    fib daddr type != unicast reject
    oifname \"scv*\" reject
    ip daddr @blocked reject
    ip6 daddr @blocked6 reject
  }}
}}
"
        )
    }

    /// Applies a policy to a slot in one transaction; the open policy removes its rules.
    pub(crate) async fn set(&self, slot: u32, policy: &NetworkPolicy) -> Result<()> {
        let target = self.target(slot);
        self.ruled().insert(slot);
        let Some(rules) = self.egress_rules(policy) else {
            nft(&target.script(policy, None)?).await?;
            if self.ports().remove(&slot).is_some() {
                self.egress.close(slot);
            }
            if *policy == NetworkPolicy::default() {
                self.ruled().remove(&slot);
            }
            return Ok(());
        };
        let failed =
            |source| Error::Kernel { action: format!("have an egress proxy at {}", target.gateway), source };
        let port = self.ports().get(&slot).copied();
        if let Some(port) = port {
            nft(&target.script(policy, Some(port))?).await?;
            return self.egress.set(slot, rules).await.map_err(failed);
        }
        let guest = self.addresses.guest(slot);
        let port = self.egress.open(slot, target.gateway, guest, rules).await.map_err(failed)?;
        if let Err(error) = nft(&target.script(policy, Some(port))?).await {
            self.egress.close(slot);
            return Err(error);
        }
        self.ports().insert(slot, port);
        Ok(())
    }

    /// Whether a slot has rules of its own, or may have some.
    pub(crate) fn has_rules(&self, slot: u32) -> bool {
        self.ruled().contains(&slot)
    }

    fn ruled(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.ruled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn target(&self, slot: u32) -> RuleTarget<'_> {
        RuleTarget {
            table: &self.table,
            slot,
            link: self.addresses.link(slot),
            gateway: self.addresses.gateway(slot),
            resolvers: &self.resolvers,
            connections: self.connections,
        }
    }

    /// Rules of a sandbox's egress proxy; `None` for a policy without host names, headers and a proxy of the user's.
    fn egress_rules(&self, policy: &NetworkPolicy) -> Option<Rules> {
        let servers = match &policy.dns {
            Some(list) if !list.is_empty() => NameServers::Guarded(list.clone()),
            _ => NameServers::Trusted(self.resolvers.clone()),
        };
        let names = policy.allow_names.clone();
        let addresses = AddressRules {
            deny_all: policy.deny_all,
            allow: policy.allow_out.clone(),
            deny: policy.deny_out.clone(),
        };
        let is_needed = !names.is_empty() || !policy.hosts.is_empty() || policy.upstream.is_some();
        is_needed.then(|| Rules {
            names,
            servers,
            addresses,
            hosts: policy.hosts.clone(),
            secrets: policy.secrets.clone(),
            identity: policy.identity.as_deref().cloned(),
            upstream: policy.upstream.as_deref().cloned(),
            resolvers: self.resolvers.clone(),
            walls: self.walls(),
        })
    }

    /// Networks that no sandbox reaches: what a proxy of the user's is asked for does not pass the firewall.
    fn walls(&self) -> Vec<String> {
        let reserved = reserved::v4_elements(self.is_laboratory);
        reserved.split(", ").map(str::to_owned).chain([self.addresses.range()]).collect()
    }

    /// Whether `host`, a name or an IPv4 address, is one that sandboxes may reach. A name is, if it can be resolved and all its addresses
    /// are.
    pub(crate) async fn is_reachable(&self, host: &str) -> Result<bool> {
        let failed = |source| Error::Kernel { action: format!("resolve `{host}`"), source };
        let addresses = match host.parse() {
            Ok(address) => vec![address],
            Err(_) => self.egress.addresses(host, &self.resolvers).await.map_err(failed)?,
        };
        let is_open = |address: &Ipv4Addr| reserved::is_open(*address, self.is_laboratory);
        Ok(!addresses.is_empty() && addresses.iter().all(is_open))
    }

    /// The last connections of a slot's egress proxy; none if it has no proxy.
    pub(crate) async fn egress_log(&self, slot: u32) -> Result<Vec<Connection>> {
        if !self.ports().contains_key(&slot) {
            return Ok(Vec::new());
        }
        let failed = |source| Error::Kernel { action: "read an egress log".into(), source };
        self.egress.log(slot).await.map_err(failed)
    }

    fn ports(&self) -> MutexGuard<'_, HashMap<u32, u16>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Reads the name servers of the host. A resolver that only listens on loopback has an upstream list of its own.
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
    // Also when nft ends before it has read everything: its own message says more than a broken pipe.
    let written = match child.stdin.take() {
        Some(mut stdin) => stdin.write_all(script.as_bytes()).await,
        None => Ok(()),
    };
    let done = child.wait_with_output().await.map_err(|error| failed(error.to_string()))?;
    if !done.status.success() {
        return Err(Error::tool("nft", &done));
    }
    written.map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::Vault;

    fn firewall(resolvers: &[[u8; 4]]) -> Firewall {
        let addresses = Addresses::new("10.213.0.0/16", 0).unwrap();
        let program = std::env::current_exe().unwrap();
        let egress = EgressSetup::new(&program, None, false, Vault::default()).unwrap();
        Firewall::new(3, addresses, resolvers.iter().map(|&address| address.into()).collect(), egress)
    }

    #[test]
    fn addresses_that_others_on_the_host_translate_stay_blocked() {
        let firewall = firewall(&[[10, 0, 0, 53]]);
        let ruleset = firewall.ruleset();
        let of_sandboxes = ruleset.lines().filter(|line| line.contains("iifname \"scv0-*\""));
        let translated: Vec<&str> = of_sandboxes.filter(|line| line.contains("ct status dnat")).collect();
        assert_eq!(translated.len(), 1);
        assert!(translated[0].contains("ip daddr 10.0.0.53") && translated[0].contains("th dport 53"));
    }

    #[test]
    fn sockets_to_name_servers_lead_nowhere_else() {
        let ruleset = firewall(&[[10, 0, 0, 53], [9, 9, 9, 9]]).ruleset();
        let output = ruleset.split("chain output").nth(1).unwrap();
        let rules: Vec<&str> =
            output.lines().map(str::trim).filter(|line| line.contains("meta mark 21251")).collect();
        assert_eq!(
            rules,
            [
                "meta mark 21251 ip daddr { 10.0.0.53, 9.9.9.9 } meta l4proto { tcp, udp } th dport 53 accept",
                "meta mark 21251 reject",
            ]
        );
        let without = firewall(&[]).ruleset();
        assert!(without.contains("meta mark 21251 reject") && !without.contains("meta mark 21251 ip daddr"));
    }

    #[test]
    fn a_policy_comes_before_connections_that_are_there() {
        let firewall = firewall(&[]);
        let ruleset = firewall.ruleset();
        let position = |text: &str| ruleset.find(text).unwrap();
        assert!(position("vmap @policies") < position("ct state established"));
        assert!(position("oifname \"scv*\" goto deny") < position("vmap @policies"));
    }

    #[test]
    fn interfaces_that_were_opened_lead_to_sandboxes_only() {
        let mut firewall = firewall(&[]);
        assert!(firewall.ruleset().contains("set opened { type ifname;  }"));
        firewall.opened = ["eth0", "wlan0"].map(str::to_owned).into();
        let ruleset = firewall.ruleset();
        assert!(
            ruleset.contains(r#"set opened { type ifname; elements = { "eth0", "wlan0" } }"#),
            "{ruleset}"
        );
        let forward = ruleset.split("chain forward").nth(1).unwrap();
        let rules: Vec<&str> =
            forward.lines().map(str::trim).filter(|rule| rule.contains("@opened")).collect();
        assert!(rules.iter().all(|rule| rule.contains("oifname != \"scv*\"")));
        assert!(rules.last().unwrap().ends_with(" drop"));
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
    fn queries_are_forgotten_soon_where_the_kernel_can() {
        let mut firewall = firewall(&[]);
        let arrival = |ruleset: &str| ruleset.split("chain arrival").nth(1).unwrap().to_owned();
        let ruleset = firewall.ruleset();
        assert!(ruleset.contains("ct timeout queries {"));
        // Forged ones are not kept at all.
        let rules = arrival(&ruleset);
        assert!(rules.find("fib saddr") < rules.find("ct timeout set \"queries\""));
        firewall.has_timeouts = false;
        assert!(!firewall.ruleset().contains("timeout"));
    }

    #[test]
    fn a_stub_resolver_on_the_host_is_not_handed_to_sandboxes() {
        assert!(only_v4(nameservers("nameserver 127.0.0.53\noptions edns0\n")).is_empty());
        assert_eq!(only_v4(nameservers("nameserver 9.9.9.9\n")), [Ipv4Addr::new(9, 9, 9, 9)]);
    }
}
