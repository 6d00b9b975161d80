//! Licences, sources and bans of `deny.toml`, checked for every dependency. `cargo deny` checks the same and known vulnerabilities, but
//! needs the network and minutes to be installed.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Refuses dependencies that `deny.toml` does not allow on the platforms that it names.
pub fn check(root: &Path) -> Result<()> {
    let policy = std::fs::read_to_string(root.join("deny.toml")).context("failed to read deny.toml")?;
    let (allowed, banned) = (strings_after(&policy, "\nallow = ["), values_of(&policy, "crate"));
    let mut broken = Vec::new();
    for platform in strings_after(&policy, "targets = [") {
        let output = std::process::Command::new(env!("CARGO"))
            .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", platform])
            .current_dir(root)
            .output()
            .context("failed to run cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        // Packages of other platforms are listed too, and are in no tree.
        let nodes = metadata["resolve"]["nodes"].as_array().into_iter().flatten();
        let used: Vec<&Value> = nodes.map(|node| &node["id"]).collect();
        for package in metadata["packages"].as_array().into_iter().flatten() {
            if used.contains(&&package["id"]) {
                broken.extend(problem(package, &allowed, &banned));
            }
        }
    }
    broken.sort();
    broken.dedup();
    if broken.is_empty() { Ok(()) } else { bail!("{}", broken.join("\n")) }
}

fn problem(package: &Value, allowed: &[&str], banned: &[&str]) -> Option<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let license = package["license"].as_str().unwrap_or_default();
    match package["source"].as_str() {
        Some(source) if source != CRATES_IO => Some(format!("{name} comes from {source}")),
        _ if banned.contains(&name) => Some(format!("{name} is banned")),
        _ if !holds(license, allowed) => Some(format!("{name}: the license `{license}` is not allowed")),
        _ => None,
    }
}

/// Whether a license expression can be met with the allowed ones.
fn holds(expression: &str, allowed: &[&str]) -> bool {
    // The slash is how `OR` used to be written.
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut words = words.as_slice();
    any(&mut words, allowed) && words.is_empty()
}

fn any(words: &mut &[&str], allowed: &[&str]) -> bool {
    let mut holds = all(words, allowed);
    while let ["OR", rest @ ..] = words {
        *words = rest;
        // Both sides are read, whatever the first says.
        holds |= all(words, allowed);
    }
    holds
}

fn all(words: &mut &[&str], allowed: &[&str]) -> bool {
    let mut holds = one(words, allowed);
    while let ["AND", rest @ ..] = words {
        *words = rest;
        holds &= one(words, allowed);
    }
    holds
}

fn one(words: &mut &[&str], allowed: &[&str]) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let holds = any(words, allowed);
            *words = words.strip_prefix(&[")"]).unwrap_or(words);
            holds
        }
        [license, "WITH", exception, rest @ ..] => {
            *words = rest;
            allowed.contains(&format!("{license} WITH {exception}").as_str())
        }
        [license, rest @ ..] => {
            *words = rest;
            allowed.contains(license)
        }
        [] => false,
    }
}

/// Reads the strings of the list that begins with `start`.
fn strings_after<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let list = text.split_once(start).and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).collect()
}

/// Reads all strings that are assigned to `key`.
fn values_of<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let start = format!("{key} = \"");
    text.split(start.as_str())
        .skip(1)
        .filter_map(|rest| rest.split_once('"'))
        .map(|(value, _)| value)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_by_what_is_allowed() {
        let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"];
        for fine in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(holds(fine, &allowed), "{fine}");
        }
        for refused in
            ["", "GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "(MIT AND GPL-3.0) OR GPL-2.0", "MIT MIT"]
        {
            assert!(!holds(refused, &allowed), "{refused}");
        }
    }
}
