//! The ready command that the SDKs write for `waitForPort`. It asks `ss`, which many images lack, so the agent looks into the
//! kernel's tables itself.

use std::fs;

/// The command of the SDKs, around the number of the port (contract: templates, section 9.5).
const AROUND: [&str; 2] = ["[ -n \"$(ss -Htuln sport = :", ")\" ]"];
/// The kernel's tables, and the state of a socket in each that `ss -l` lists: listening, or not connected.
const TABLES: [(&str, &str); 4] =
    [("/proc/net/tcp", "0A"), ("/proc/net/tcp6", "0A"), ("/proc/net/udp", "07"), ("/proc/net/udp6", "07")];

/// Text that the host puts in front of the command for an image with a `PATH` of its own.
const SEARCHED: [&str; 2] = ["export PATH=", "\":$PATH\"; "];

/// The port that a ready command waits for, if it is the command of the SDKs.
pub(super) fn port(ready_command: &str) -> Option<u16> {
    let (before, rest) = ready_command.trim().split_once(AROUND[0])?;
    let is_search_path = before.starts_with(SEARCHED[0]) && before.ends_with(SEARCHED[1]);
    if !(before.is_empty() || is_search_path) {
        return None;
    }
    rest.strip_suffix(AROUND[1])?.parse().ok()
}

/// Whether a socket waits for connections or packets on `port`.
pub(super) fn is_open(port: u16) -> bool {
    TABLES.iter().any(|(table, state)| fs::read_to_string(table).is_ok_and(|text| has(&text, port, state)))
}

fn has(table: &str, port: u16, state: &str) -> bool {
    let wanted = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next().is_some_and(|local| local.ends_with(&wanted)) && fields.nth(1) == Some(state)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_the_sdks_is_known() {
        assert_eq!(port("[ -n \"$(ss -Htuln sport = :8080)\" ]"), Some(8080));
        assert_eq!(port("[ -n \"$(ss -Htuln sport = :x)\" ]"), None);
        assert_eq!(port("export PATH='/opt/bin'\":$PATH\"; [ -n \"$(ss -Htuln sport = :80)\" ]"), Some(80));
        assert_eq!(port("touch x; [ -n \"$(ss -Htuln sport = :80)\" ]"), None);
        assert_eq!(port("sleep 1"), None);
    }

    #[test]
    fn listening_sockets_are_found_and_connected_ones_are_not() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
                     \x20  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n\
                     \x20  1: 0100007F:1F91 0100007F:C350 01 00000000:00000000\n";
        assert!(has(table, 8080, "0A"));
        assert!(!has(table, 8081, "0A"));
        assert!(!has(table, 80, "0A"));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_open(listener.local_addr().unwrap().port()));
    }
}
