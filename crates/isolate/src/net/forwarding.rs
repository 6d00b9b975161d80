//! Forwarding of IPv4 packets by the host. Where the host does not forward, it is switched on for each interface instead of by
//! the switch for all, which stays off: so it shows who opened what. Packets that arrive at an interface that was opened here
//! may go to sandboxes only, or be those of a connection that the host translates: the host does not become a router.
//!
//! Interfaces that appear later forward too, because a sandbox's answers may arrive there. A host that forwards already is
//! left as it is.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use tokio::process::Command;

use crate::{Error, Result};

const ALL: &str = "/proc/sys/net/ipv4/ip_forward";
const EACH: &str = "/proc/sys/net/ipv4/conf";
/// Settings that interfaces get when they appear.
const LATER: &str = "default";
/// Name of the set of interfaces that were opened, in the table of each instance. The set is the only record of them.
pub(super) const SET: &str = "opened";
/// Prefix of the names of the tables.
const TABLES: &str = "sandcove";

/// Switches forwarding on, and returns the interfaces that forward because of it, now or since an earlier server.
pub(super) async fn open() -> Result<BTreeSet<String>> {
    if is_on(Path::new(ALL)) {
        return Ok(BTreeSet::new());
    }
    let earlier = opened().await;
    let mut names = BTreeSet::new();
    for name in interfaces() {
        let path = switch(&name);
        if !is_on(&path) {
            set(&path, true)?;
            names.insert(name);
        } else if earlier.contains(&name) {
            names.insert(name);
        }
    }
    set(&switch(LATER), true)?;
    Ok(names)
}

/// Switches forwarding off again for `names`, unless another instance needs it. A failure is only logged.
pub(super) async fn close(names: &BTreeSet<String>) {
    if is_on(Path::new(ALL)) || tables().await {
        return;
    }
    for name in names.iter().map(String::as_str).chain([LATER]) {
        let path = switch(name);
        if is_on(&path)
            && let Err(error) = set(&path, false)
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "failed to switch forwarding off");
        }
    }
}

/// Reads the interfaces that servers of this host have opened, from the tables of all instances.
pub(super) async fn opened() -> BTreeSet<String> {
    names_in(&list("sets").await)
}

fn names_in(listed: &[Value]) -> BTreeSet<String> {
    let sets = listed.iter().filter_map(|one| one.get("set"));
    let ours = sets.filter(|set| {
        set["name"] == SET && set["table"].as_str().is_some_and(|table| table.starts_with(TABLES))
    });
    ours.filter_map(|set| set["elem"].as_array())
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}

/// Whether an instance has a table.
async fn tables() -> bool {
    let listed = list("tables").await;
    let mut names = listed.iter().filter_map(|one| one["table"]["name"].as_str());
    names.any(|name| name.starts_with(TABLES))
}

/// Lists what nftables has of a kind; nothing when it cannot tell.
async fn list(kind: &str) -> Vec<Value> {
    let output = Command::new("nft").args(["--json", "list", kind]).kill_on_drop(true).output().await;
    let parsed = output.map_err(serde_json::Error::io).and_then(|output| {
        let mut listed: Value = serde_json::from_slice(&output.stdout)?;
        Ok(listed["nftables"].take())
    });
    match parsed {
        Ok(Value::Array(listed)) => listed,
        Ok(_) => Vec::new(),
        Err(error) => {
            tracing::debug!(%error, kind, "nft listed nothing");
            Vec::new()
        }
    }
}

/// Lists the interfaces of the host. One whose name could be read as a pattern is left out, and does not forward.
fn interfaces() -> Vec<String> {
    let entries = std::fs::read_dir(EACH).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| !["all", LATER, "lo"].contains(&name.as_str()) && is_plain(name)).collect()
}

fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte))
}

fn switch(interface: &str) -> std::path::PathBuf {
    Path::new(EACH).join(interface).join("forwarding")
}

fn is_on(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

fn set(path: &Path, on: bool) -> Result<()> {
    match std::fs::write(path, if on { "1" } else { "0" }) {
        // The interface has just disappeared.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        written => written.map_err(|source| Error::Path { action: "write", path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_sets_of_this_program_say_what_was_opened() {
        let set = |table: &str, name: &str, elem: Value| json!({ "set": { "family": "inet", "table": table, "name": name, "type": "ifname", "elem": elem } });
        let listed = [
            json!({ "metainfo": { "version": "1.0.9" } }),
            set("sandcove0", SET, json!(["eth0", "wlan0"])),
            set("sandcove3", SET, json!(["eth1"])),
            set("sandcove0", "answers", json!(["scv0-1"])),
            set("filter", SET, json!(["eth9"])),
            json!({ "set": { "table": "sandcove1", "name": SET } }),
        ];
        assert_eq!(names_in(&listed), ["eth0", "eth1", "wlan0"].map(str::to_owned).into());
    }

    #[test]
    fn a_name_that_nft_would_read_as_more_is_left_out() {
        assert!(is_plain("eth0.100") && is_plain("enp0s31f6") && is_plain("veth@if3"));
        for name in ["eth*", "a\"b", "a,b", "a b", "ä"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
