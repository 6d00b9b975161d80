//! The kernel's table of connections. The host shares it with all sandboxes, and a full table cuts off everybody, so that
//! the sandboxes together may fill three quarters of it, and each its part of that.

use std::path::Path;

/// File with the size of the table.
const SIZE: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
/// Maximum number of connections of one sandbox, for which the table is made large enough if there is memory. The backlog of the
/// sandbox's egress proxy is as long: the kernel resets connections beyond a backlog.
pub(super) const MAX_EACH: u32 = 4096;
/// Maximum number of queries of one sandbox that are in the table. All are sent to one address of the same host, for which the translation
/// of addresses has 64,000 ports.
pub(super) const MAX_LOOKUPS: u32 = 1024;
/// Number of connections of one sandbox that programs may find too small.
const WARN_BELOW: u64 = 1024;
/// Minimum number of connections of one sandbox, however small the table is.
const MIN_EACH: u64 = 64;
/// Memory of one connection, bytes, rounded up.
const ENTRY: u64 = 384;
/// Share of the memory of the host that a full table may take.
const MEMORY_SHARE: u64 = 8;

/// Name of the timeouts of queries to name servers in the table of an instance.
pub(super) const QUERIES: &str = "queries";
/// Timeout of a query over UDP, seconds. The kernel keeps one for 30 s otherwise, so that a sandbox that looks up 140 names a second
/// would have all its connections in use. Resolvers ask again after 5 s, which renews it.
const QUERY_TIMEOUT: u32 = 6;
/// Timeout of the socket of a resolver that goes on asking, seconds.
const RESOLVER_TIMEOUT: u32 = 30;

/// Enlarges the table for `slots` sandboxes, and returns the number of connections that each may have.
pub(super) fn connections_of_each(slots: u32) -> u32 {
    let Some(now) = size() else { return MAX_EACH };
    let wanted = wanted_size(now, slots.into(), memory());
    if wanted > now
        && let Err(error) = std::fs::write(SIZE, wanted.to_string())
    {
        // Only the host's own network namespace may.
        tracing::debug!(%error, "failed to enlarge the table of connections");
    }
    let each = part(size().unwrap_or(now), slots.into());
    if each < WARN_BELOW {
        tracing::info!(
            connections = each,
            slots,
            "the kernel's table of connections is small for so many sandboxes"
        );
    }
    u32::try_from(each).unwrap_or(u32::MAX)
}

/// Whether the kernel has its table; it comes with the first rule that needs it.
pub(super) fn is_loaded() -> bool {
    Path::new(SIZE).exists()
}

/// A table with a rule that needs the kernel's table of connections. Each rule ends with its line: a closing brace does not end it for
/// nftables 1.0.
pub(super) fn first_rule(table: &str) -> String {
    format!("table inet {table} {{\n  chain tracking {{\n    ct state new accept\n  }}\n}}\n")
}

/// The timeouts [`QUERIES`]. Each has its line, as nftables 1.0 needs it.
pub(super) fn query_timeouts() -> String {
    let policy = format!("policy = {{ unreplied : {QUERY_TIMEOUT}, replied : {RESOLVER_TIMEOUT} }}");
    format!("  ct timeout {QUERIES} {{\n    protocol udp\n    l3proto ip\n    {policy}\n  }}\n")
}

fn wanted_size(now: u64, slots: u64, memory: u64) -> u64 {
    now.max((slots * u64::from(MAX_EACH) * 4 / 3).min(memory / MEMORY_SHARE / ENTRY))
}

fn part(size: u64, slots: u64) -> u64 {
    (size / 4 * 3 / slots.max(1)).clamp(MIN_EACH, MAX_EACH.into())
}

fn size() -> Option<u64> {
    std::fs::read_to_string(SIZE).ok()?.trim().parse().ok()
}

/// Memory of the host, bytes.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
    total.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nftables_of_any_version_reads_the_first_rule() {
        let script = first_rule("sandcove7");
        let rule = script.lines().find(|line| line.contains("ct state")).unwrap();
        assert!(!rule.contains(['{', '}']), "{script}");
    }

    #[test]
    fn all_sandboxes_together_leave_the_host_a_quarter() {
        for (size, slots) in [(262_144, 114), (262_144, 1064), (1 << 20, 1064), (65_536, 8), (1 << 22, 2048)]
        {
            assert!(part(size, slots) * slots <= size / 4 * 3, "{size} {slots}");
        }
        assert_eq!(part(1 << 22, 8), u64::from(MAX_EACH));
        assert_eq!(part(1024, 1000), MIN_EACH);
    }

    #[test]
    fn the_table_grows_with_the_sandboxes_as_far_as_the_memory_allows() {
        let size = wanted_size(262_144, 1064, 64 << 30);
        assert!(part(size, 1064) >= u64::from(MAX_EACH) - 1 && size < 6 << 20);
        assert_eq!(wanted_size(262_144, 1064, 1 << 30), (1 << 30) / MEMORY_SHARE / ENTRY);
        // A table that the operator has made larger stays as it is.
        assert_eq!(wanted_size(1 << 23, 1064, 64 << 30), 1 << 23);
        assert_eq!(wanted_size(262_144, 40, 64 << 30), 262_144);
    }
}
