//! The files that describe a sandbox inside (contract: envd, section 6). A sandbox starts without them too, so failures are only
//! logged.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;

use sandcove_wire::boot::{Boot, METADATA_ADDRESS};

use crate::facts::{attempt, write_fact, write_if_different};

/// Host name of the events address.
const EVENTS_NAME: &str = "events.e2b.local";

/// Writes the files that are the same in all sandboxes of the template.
pub(super) fn write(boot: &Boot) {
    attempt("/etc/hostname", write_if_different("/etc/hostname", &format!("{}\n", boot.hostname)));
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    attempt("/etc/hosts", write_if_different("/etc/hosts", &with_own_names(&hosts, &boot.hostname)));
    if !boot.nameservers.is_empty() {
        attempt("/etc/resolv.conf", write_if_different("/etc/resolv.conf", &resolver(&boot.nameservers)));
    }
    attempt(".E2B_SANDBOX", write_fact(".E2B_SANDBOX", "true"));
}

fn resolver(nameservers: &[IpAddr]) -> String {
    nameservers.iter().fold(String::new(), |mut text, server| {
        let _ = writeln!(text, "nameserver {server}");
        text
    })
}

/// The host table with the names of the sandbox, and with what others have written into it.
fn with_own_names(present: &str, hostname: &str) -> String {
    const OWN_ADDRESS: &str = "127.0.1.1";
    let names = |line: &str| -> Vec<String> {
        let content = line.split('#').next().unwrap_or_default();
        content.split_whitespace().map(str::to_owned).collect()
    };
    let ours = |line: &&str| {
        let words = names(line);
        words.iter().any(|word| word == EVENTS_NAME)
            || words.first().is_some_and(|address| address == OWN_ADDRESS)
    };
    let mut text: String =
        present.lines().filter(|line| !ours(line)).map(|line| format!("{line}\n")).collect();
    let known =
        |address: &str| present.lines().any(|line| names(line).first().is_some_and(|first| first == address));
    for (address, rest) in [("127.0.0.1", "localhost"), ("::1", "localhost ip6-localhost ip6-loopback")] {
        if !known(address) {
            let _ = writeln!(text, "{address}\t{rest}");
        }
    }
    // The whole name first: the first one is what `hostname -f` prints.
    let short = hostname.split_once('.').map_or_else(String::new, |(short, _)| format!(" {short}"));
    let _ = writeln!(text, "{OWN_ADDRESS}\t{hostname}{short}");
    let _ = writeln!(text, "{METADATA_ADDRESS}\t{EVENTS_NAME}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_host_table_gets_all_names() {
        let expected = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
                        127.0.1.1\te2b.local e2b\n192.0.2.1\tevents.e2b.local\n";
        assert_eq!(with_own_names("", "e2b.local"), expected);
    }

    #[test]
    fn what_users_added_stays_and_a_second_boot_changes_nothing() {
        let first = with_own_names("127.0.0.1 localhost mine # note\n10.0.0.1 db\n", "one");
        assert!(first.starts_with("127.0.0.1 localhost mine # note\n10.0.0.1 db\n::1"), "{first}");
        assert_eq!(with_own_names(&first, "one"), first);
        let renamed = with_own_names(&first, "two");
        assert!(renamed.contains("127.0.1.1\ttwo\n") && !renamed.contains("one"), "{renamed}");
    }
}
