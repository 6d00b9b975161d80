//! The bill of materials of the program: every package that is compiled into it, as CycloneDX 1.5, from `cargo metadata` and `Cargo.lock`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// The package of the program.
const PROGRAM: &str = "sandcove-cli";
/// Programs for the inside of sandboxes, which the program embeds.
const EMBEDDED: [&str; 2] = ["sandcove-agent", "sandcove-interpreter"];

/// Prints the bill of materials for the platform of this host.
pub fn print(root: &Path) -> Result<()> {
    let host = text(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let metadata = text(
        Command::new(env!("CARGO"))
            .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", host.trim()])
            .current_dir(root),
    )?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("failed to read Cargo.lock")?;
    let bill = bill(&serde_json::from_str(&metadata)?, &checksums(&lock)?)?;
    println!("{}", serde_json::to_string_pretty(&bill)?);
    Ok(())
}

fn text(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("failed to run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).map_err(Into::into)
}

/// Digests of packages by name and version.
fn checksums(lock: &str) -> Result<HashMap<(String, String), String>> {
    let lock: toml::Value = toml::from_str(lock).context("failed to read Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let field = |package: &toml::Value, name: &str| Some(package.get(name)?.as_str()?.to_owned());
    let entry =
        |package| Some(((field(package, "name")?, field(package, "version")?), field(package, "checksum")?));
    Ok(packages.filter_map(entry).collect())
}

fn bill(metadata: &Value, checksums: &HashMap<(String, String), String>) -> Result<Value> {
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let id = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (id(&package["id"]), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (id(&node["id"]), node)).collect();
    let named =
        |name: &str| packages.iter().find(|(_, package)| package["name"] == name).map(|(id, _)| id.clone());
    let program = named(PROGRAM).with_context(|| format!("there is no package {PROGRAM}"))?;
    // What is linked: no build scripts, and nothing of tests.
    let needs = |node: &Value| -> Vec<String> {
        let is_linked =
            |dependency: &Value| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        list(&node["deps"])
            .iter()
            .filter(|dependency| is_linked(dependency))
            .map(|dependency| id(&dependency["pkg"]))
            .collect()
    };
    let mut found = BTreeSet::new();
    let mut next: Vec<String> =
        EMBEDDED.iter().filter_map(|name| named(name)).chain([program.clone()]).collect();
    while let Some(package) = next.pop() {
        if found.insert(package.clone()) {
            next.extend(nodes.get(&package).map(needs).unwrap_or_default());
        }
    }
    let purl = |package: &Value| format!("pkg:cargo/{}@{}", id(&package["name"]), id(&package["version"]));
    let component = |package: &Value| {
        let mut component = json!({
            "type": "library",
            "bom-ref": purl(package),
            "name": package["name"],
            "version": package["version"],
            "purl": purl(package),
        });
        if let Some(license) = package["license"].as_str() {
            component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
        }
        if let Some(digest) = checksums.get(&(id(&package["name"]), id(&package["version"]))) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": digest }]);
        }
        component
    };
    let others = found.iter().filter(|one| **one != program).filter_map(|one| packages.get(one));
    let mut main = component(&packages[&program]);
    main["type"] = json!("application");
    main["name"] = json!("sandcove");
    let dependencies: Vec<Value> = found
        .iter()
        .map(|one| {
            let on = nodes.get(one).map(needs).unwrap_or_default();
            let on: BTreeSet<String> = on.iter().map(|one| purl(&packages[one])).collect();
            json!({ "ref": purl(&packages[one]), "dependsOn": on })
        })
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": main },
        "components": others.map(component).collect::<Vec<_>>(),
        "dependencies": dependencies,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_with_its_digest() {
        let package =
            |name: &str| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0" });
        let needs = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [package("sandcove-cli"), package("linked"), package("built-with"), package("deeper")],
            "resolve": { "nodes": [
                { "id": "sandcove-cli", "deps": [needs("linked", Value::Null), needs("built-with", json!("build"))] },
                { "id": "linked", "deps": [needs("deeper", Value::Null)] },
                { "id": "deeper", "deps": [] },
                { "id": "built-with", "deps": [] },
            ] },
        });
        let lock = "[[package]]\nname = \"linked\"\nversion = \"1.0.0\"\nchecksum = \"ab\"\n";
        let bill = bill(&metadata, &checksums(lock).unwrap()).unwrap();
        let names: Vec<&str> =
            bill["components"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["deeper", "linked"]);
        assert_eq!(bill["components"][1]["hashes"][0]["content"], "ab");
        assert_eq!(bill["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["metadata"]["component"]["name"], "sandcove");
    }
}
