//! What of a sandbox's network cannot be stored although CRIU does not say so: datagrams that no process has read, and memberships in multicast
//! groups.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::budget::Budget;
use super::descriptors;
use super::numbers::named;
use crate::Result;

/// Tables of sockets with queues that CRIU does not store, in `/proc/PID/net`.
const TABLES: [&str; 8] = ["udp", "udp6", "udplite", "udplite6", "raw", "raw6", "icmp", "icmp6"];

/// The reason why the network of the frozen processes `pids` cannot be stored.
pub(super) fn reason(pids: &[u32], budget: &Budget) -> Result<Option<String>> {
    let table = |name: &str| {
        // All processes of a sandbox have one network. A process that has ended, or a kernel without the protocol, has no table.
        pids.iter().find_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/net/{name}")).ok())
    };
    let unread: HashSet<u64> =
        TABLES.iter().filter_map(|name| table(name)).flat_map(|text| unread(&text)).collect();
    if let Some(pid) = owner(pids, &unread, budget)? {
        return Ok(Some(format!("{} has a socket with datagrams that were not read", named(pid))));
    }
    let group = table("igmp")
        .and_then(|text| joined(&text))
        .map(IpAddr::from)
        .or_else(|| table("igmp6").and_then(|text| joined6(&text)).map(IpAddr::from));
    Ok(group.map(|group| format!("a socket has joined the multicast group {group}")))
}

/// The first process that has one of these sockets. A socket without a process is about to be closed.
fn owner(pids: &[u32], sockets: &HashSet<u64>, budget: &Budget) -> Result<Option<u32>> {
    let has = |pid: u32| {
        let targets = descriptors::of(pid).into_iter();
        targets.filter_map(|(_, target)| descriptors::socket(&target)).any(|number| sockets.contains(&number))
    };
    for pid in pids.iter().filter(|_| !sockets.is_empty()) {
        budget.check()?;
        if has(*pid) {
            return Ok(Some(*pid));
        }
    }
    Ok(None)
}

/// Numbers of the sockets of a table whose receive queue has something.
fn unread(table: &str) -> Vec<u64> {
    let number = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, received) = fields.get(4)?.split_once(':')?;
        let is_empty = u64::from_str_radix(received, 16).ok()? == 0;
        if is_empty { None } else { fields.get(9)?.parse().ok() }
    };
    table.lines().skip(1).filter_map(number).collect()
}

/// A group of IPv4 that a socket has joined, by the text of `igmp`. Each host is in 224.0.0.1.
fn joined(table: &str) -> Option<Ipv4Addr> {
    let groups = table.lines().skip(1).filter(|line| line.starts_with('\t'));
    groups
        .filter_map(|line| u32::from_str_radix(line.split_whitespace().next()?, 16).ok())
        .map(|bytes| Ipv4Addr::from(bytes.to_ne_bytes()))
        .find(|group| *group != Ipv4Addr::new(224, 0, 0, 1))
}

/// A group of IPv6 that a socket has joined, by the text of `igmp6`. The kernel itself joins those of all nodes and routers, and those
/// that go with its addresses.
fn joined6(table: &str) -> Option<Ipv6Addr> {
    let groups = table.lines().filter_map(|line| {
        Some(Ipv6Addr::from(u128::from_str_radix(line.split_whitespace().nth(2)?, 16).ok()?))
    });
    groups.into_iter().find(|group| {
        let segments = group.segments();
        let all = segments[1..7] == [0; 6] && [1, 2].contains(&segments[7]);
        let of_address =
            segments[0] == 0xFF02 && segments[1..6] == [0, 0, 0, 0, 1] && segments[6] >> 8 == 0xFF;
        !all && !of_address
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn datagrams_that_were_not_read_are_found() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let own = [std::process::id()];
        // One without content counts as well.
        receiver.send_to(b"", receiver.local_addr().unwrap()).unwrap();
        let reason = reason(&own, &Budget::start()).unwrap().unwrap();
        assert_eq!(reason, format!("{} has a socket with datagrams that were not read", named(own[0])));
    }

    #[test]
    fn only_groups_that_sockets_have_joined_are_found() {
        let kernel = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n\
                      1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n";
        assert_eq!(joined(kernel), None);
        let more = format!("{kernel}\t\t\t\t030201EF     1 0:00000000\t\t0\n");
        assert_eq!(joined(&more), Some(Ipv4Addr::new(239, 1, 2, 3)));
        let kernel = "1    lo              ff020000000000000000000000000001     1 0000000C 0\n\
                      2    eth0            ff0200000000000000000001ff00a9fe     1 00000004 0\n\
                      2    eth0            ff010000000000000000000000000001     1 00000008 0\n";
        assert_eq!(joined6(kernel), None);
        let more =
            format!("{kernel}2    eth0            ff0200000000000000000000000000fb     1 00000004 0\n");
        assert_eq!(joined6(&more), Some("ff02::fb".parse().unwrap()));
    }
}
