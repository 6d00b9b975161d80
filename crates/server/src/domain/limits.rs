//! Limits on what one request makes the server keep, and on what piles up request by request. Limits that operators set for
//! each team are in [`super::team`].

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Error, Result};

/// Maximum number of labels of a sandbox, and of bytes of their keys and values as JSON, which they are in answers and events.
const METADATA: MapLimits = MapLimits { entries: 1024, bytes: 64 << 10 };
/// Maximum number of variables of a sandbox, and of bytes of their names and values as JSON.
const ENV_VARS: MapLimits = MapLimits { entries: 4096, bytes: 256 << 10 };
/// Maximum size of `mcp` as JSON, bytes.
const MCP_BYTES: usize = 64 << 10;
/// Maximum number of entries in each list of network rules.
pub(super) const NETWORK_ENTRIES: usize = 1000;
/// Maximum length of an entry of network rules, bytes; a host name has at most 255.
pub(super) const NETWORK_ENTRY_BYTES: usize = 260;
/// Maximum length of a masked host, bytes.
pub(super) const MASK_BYTES: usize = 260;
/// Maximum number of volumes mounted in one sandbox.
pub(crate) const MOUNTS: usize = 16;
/// Maximum length of a mount point, bytes.
pub(crate) const MOUNT_PATH_BYTES: usize = 1024;
/// Maximum length of the name of a volume, characters.
pub(crate) const VOLUME_NAME: usize = 128;
/// Maximum number of secrets of one team.
pub(crate) const SECRETS: i64 = 500;
/// Maximum length of the name of a secret, characters.
pub(crate) const SECRET_NAME: usize = 128;
/// Maximum length of the value of a secret, bytes; a header has at most 16 KiB with most servers.
pub(crate) const SECRET_VALUE: usize = 8 << 10;
/// Maximum number of labels of a secret, and of bytes of their keys and values.
const SECRET_METADATA: MapLimits = MapLimits { entries: 32, bytes: 8192 };
/// Maximum lengths of the key and the value of a label of a secret, bytes.
const SECRET_LABEL: (usize, usize) = (128, 1024);
/// Maximum number of webhooks of one team.
pub(crate) const WEBHOOKS: usize = 50;
/// Maximum number of attempts to deliver that are kept of a team's webhooks, in equal parts for each; the oldest are deleted first.
pub(crate) const WEBHOOK_ATTEMPTS: i64 = 10_000;
/// Maximum number of attempts to deliver one event that are kept; the oldest are deleted first.
pub(crate) const EVENT_ATTEMPTS: i64 = 10;
/// Maximum length of the body of a request or of an answer that is kept of an attempt, bytes; of the latter as JSON.
pub(crate) const ATTEMPT_BODY_BYTES: usize = 8 << 10;
/// Maximum number of API keys of one team.
pub(crate) const API_KEYS: usize = 1000;
/// Maximum number of keys that `GET /teams` has issued to one team; those used least recently are deleted first.
pub(crate) const ISSUED_KEYS: i64 = 100;
/// Maximum number of access tokens of one team.
pub(crate) const ACCESS_TOKENS: usize = 1000;
/// Maximum number of idempotency keys that are kept of one team; the oldest are deleted first.
pub(crate) const IDEMPOTENCY_KEYS: i64 = 10_000;
/// Maximum number of events kept of one team, whatever their age.
pub(crate) const EVENTS: i64 = 100_000;
/// Maximum size of the events kept of one team, bytes.
pub(crate) const EVENT_BYTES: i64 = 256 << 20;
/// Maximum number of deliveries that wait for one webhook; further events are not delivered to it.
pub(crate) const WAITING_DELIVERIES: i64 = 10_000;
/// Maximum number of templates of one team, without snapshots.
pub(crate) const TEMPLATES: usize = 1000;
/// Maximum number of builds of one team that wait or are in progress.
pub(crate) const BUILDS: u32 = 20;
/// Time after which a build that was never started has failed, microseconds.
pub(crate) const BUILD_WAIT: i64 = 40 * 60 * 1_000_000;
/// Maximum number of tags of one template.
pub(crate) const TAGS: usize = 1000;
/// Maximum number of builds of a template that are kept without a tag; the oldest are deleted first.
pub(crate) const UNTAGGED_BUILDS: i64 = 50;
/// Maximum number of a team's deleted templates that are remembered; the oldest are forgotten first.
pub(crate) const DELETED_TEMPLATES: i64 = 1000;
/// Maximum number of assignments that are kept of one tag; the oldest are deleted first.
pub(crate) const TAG_ASSIGNMENTS: i64 = 100;
/// Maximum size of the uploaded files of the builds of one team together, MiB; less when its sandboxes have less disk.
pub(crate) const FILE_SETS_MIB: u64 = 64 << 10;
/// Maximum number of steps of a build.
pub(crate) const BUILD_STEPS: usize = 1000;
/// Maximum size of what a build is made from, as JSON, bytes.
pub(crate) const BUILD_SPEC_BYTES: usize = 4 << 20;

/// Maximum number of entries of a map, and of bytes of their keys and values as JSON.
#[derive(Debug, Clone, Copy)]
struct MapLimits {
    entries: usize,
    bytes: usize,
}

/// Checks the labels of a sandbox.
pub(crate) fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<()> {
    METADATA.check("metadata", metadata)
}

/// Checks the variables of a sandbox.
pub(crate) fn check_env_vars(variables: &BTreeMap<String, String>) -> Result<()> {
    // Linux ends a variable at a zero byte: no command of the sandbox would start.
    if let Some((name, _)) =
        variables.iter().find(|(name, value)| name.contains('\0') || value.contains('\0'))
    {
        let name = name.escape_debug();
        return Err(Error::InvalidRequest(format!("property \"envVars\" has a zero byte in `{name}`")));
    }
    ENV_VARS.check("envVars", variables)
}

/// Checks the labels of a secret.
pub(crate) fn check_secret_metadata(metadata: &BTreeMap<String, String>) -> Result<()> {
    let (key, value) = SECRET_LABEL;
    if metadata.iter().any(|(k, v)| k.len() > key || v.len() > value) {
        let form = "must have keys of at most 128 bytes and values of at most 1024";
        return Err(Error::InvalidRequest(format!("property \"metadata\" {form}")));
    }
    SECRET_METADATA.check("metadata", metadata)
}

/// Checks the settings of MCP.
pub(crate) fn check_mcp(mcp: &impl Serialize) -> Result<()> {
    let bytes = serde_json::to_vec(mcp).map_or(usize::MAX, |json| json.len());
    if bytes <= MCP_BYTES { Ok(()) } else { Err(too_much("mcp", MCP_BYTES, "bytes", bytes)) }
}

impl MapLimits {
    fn check(self, property: &str, map: &BTreeMap<String, String>) -> Result<()> {
        if map.len() > self.entries {
            return Err(too_much(property, self.entries, "entries", map.len()));
        }
        let bytes = map_length(map);
        if bytes > self.bytes {
            return Err(too_much(property, self.bytes, "bytes of keys and values as JSON", bytes));
        }
        Ok(())
    }
}

/// Size of the keys and values of a map as JSON, bytes.
pub(crate) fn map_length(map: &BTreeMap<String, String>) -> usize {
    map.iter().map(|(key, value)| json_length(key) + json_length(value)).sum()
}

/// Length of `text` within a JSON string, bytes: a character may take six times as much as by itself.
pub(crate) fn json_length(text: &str) -> usize {
    text.chars().map(json_width).sum()
}

/// The longest beginning of `text` that takes at most `max` bytes within a JSON string.
pub(crate) fn json_prefix(text: &str, max: usize) -> &str {
    let mut left = max;
    let end = text.char_indices().find(|(_, c)| match left.checked_sub(json_width(*c)) {
        Some(rest) => {
            left = rest;
            false
        }
        None => true,
    });
    end.map_or(text, |(end, _)| &text[..end])
}

fn json_width(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

fn too_much(property: &str, max: usize, unit: &str, given: usize) -> Error {
    Error::InvalidRequest(format!("property \"{property}\" must have at most {max} {unit}, not {given}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: usize, bytes: usize) -> BTreeMap<String, String> {
        (0..entries).map(|n| (format!("{n:06}"), "x".repeat(bytes - 6))).collect()
    }

    #[test]
    fn maps_are_limited_in_number_and_in_bytes() {
        assert!(check_metadata(&map(1, 64 << 10)).is_ok());
        assert!(check_metadata(&map(1024, 64)).is_ok());
        let error = check_metadata(&map(1, (64 << 10) + 1)).unwrap_err().to_string();
        assert_eq!(
            error,
            "validation error: property \"metadata\" must have at most 65536 bytes of keys and values as JSON, not 65537"
        );
        assert!(
            check_metadata(&map(1025, 7))
                .unwrap_err()
                .to_string()
                .ends_with("at most 1024 entries, not 1025")
        );
        assert!(check_env_vars(&map(1, 256 << 10)).is_ok());
        assert!(check_env_vars(&map(2, 256 << 10)).is_err());
        for (name, value) in [("a\0", "b"), ("a", "\0b")] {
            assert!(check_env_vars(&BTreeMap::from([(name.to_owned(), value.to_owned())])).is_err());
        }
    }

    #[test]
    fn what_is_long_as_json_is_long() {
        for text in ["", "abc", "ä€🦀", "\"\\/\n\r\t\u{8}\u{c}\0\u{1}\u{1f}\u{7f}\u{2028}"] {
            assert_eq!(json_length(text) + 2, serde_json::to_string(text).unwrap().len(), "{text:?}");
        }
        let labels = |length| BTreeMap::from([(String::new(), "\u{1}".repeat(length))]);
        assert!(check_metadata(&labels((64 << 10) / 6)).is_ok());
        assert!(check_metadata(&labels((64 << 10) / 6 + 1)).is_err());
        assert_eq!(["ab", "a\n", "aä", "abc"].map(|text| json_prefix(text, 2)), ["ab", "a", "a", "ab"]);
    }

    #[test]
    fn mcp_is_limited_as_json() {
        assert!(check_mcp(&"x".repeat((64 << 10) - 2)).is_ok());
        assert!(check_mcp(&"x".repeat((64 << 10) - 1)).is_err());
    }
}
