//! Directions between crates (docs/internals/architecture.md, "Directions"): `rooms.toml` says what each imports and must not list, and
//! `cargo metadata` what it does.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::rooms::{self, Houses};

/// Beginning of the names of all crates of the workspace.
const PREFIX: &str = "sandcove-";

/// Refuses a dependency that `rooms.toml` does not name, and a name there without a dependency.
pub fn check(root: &Path) -> Result<()> {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("failed to run cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let broken = problems(&rooms::read(root)?, &metadata);
    if broken.is_empty() { Ok(()) } else { bail!("{}", broken.join("\n")) }
}

fn problems(houses: &Houses, metadata: &Value) -> Vec<String> {
    let mut broken = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(house) = name.strip_prefix(PREFIX).and_then(|name| houses.get(name)) else { continue };
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let listed = dependencies.filter(|dependency| dependency["kind"].is_null());
        let listed: BTreeSet<&str> = listed.filter_map(|dependency| dependency["name"].as_str()).collect();
        let imported: BTreeSet<&str> = listed.iter().filter_map(|name| name.strip_prefix(PREFIX)).collect();
        let permitted = house.imports.iter().map(String::as_str).collect();
        for other in imported.difference(&permitted) {
            broken.push(format!("{name} may not depend on {PREFIX}{other}: rooms.toml does not list it"));
        }
        for other in permitted.difference(&imported) {
            broken.push(format!("{name} does not depend on {PREFIX}{other}, which rooms.toml lists"));
        }
        for other in house.never.iter().filter(|other| listed.contains(other.as_str())) {
            broken.push(format!("{name} may not depend on {other}"));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dependencies_are_those_that_rooms_toml_lists() {
        let houses: Houses =
            toml::from_str("[egress]\nimports = [\"wire\", \"channel\"]\nnever = [\"sqlx\"]\nfloors = []")
                .unwrap();
        let depends_on = |names: &[&str]| {
            let list: Vec<_> = names.iter().map(|name| json!({ "name": name, "kind": null })).collect();
            problems(&houses, &json!({ "packages": [{ "name": "sandcove-egress", "dependencies": list }] }))
        };
        assert_eq!(depends_on(&["sandcove-wire", "sandcove-channel", "tokio"]), Vec::<String>::new());
        let upwards = depends_on(&["sandcove-wire", "sandcove-channel", "sandcove-client", "sqlx"]);
        assert!(upwards[0].contains("may not depend on sandcove-client"), "{upwards:?}");
        assert!(upwards[1].contains("may not depend on sqlx"), "{upwards:?}");
        let unused = depends_on(&["sandcove-wire"]);
        assert!(unused[0].contains("does not depend on sandcove-channel"), "{unused:?}");
    }
}
