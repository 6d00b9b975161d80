//! Providers: ids, maps, and files with lists of them.

use std::path::{Path, PathBuf};

use crate::calling::CallError;
use crate::calling::spec::ProviderSpec;
use crate::provider::{self, Family, settings, unsupported};
use crate::reading::diagnostic::{Findings, Severity, nearest};
use crate::reading::node::{Kind, Node};
use crate::reading::references::{self, ReferenceError};
use crate::reading::{document, files};

const KEYS: &[&str] = &["id", "label", "config", "prompts", "transform", "delay", "env", "inputs"];

/// Reads a `providers` value.
pub fn read(node: &Node, base: &Path, findings: &mut Findings) -> Vec<ProviderSpec> {
    match &node.kind {
        Kind::List(items) => items.iter().flat_map(|item| one(item, base, findings)).collect(),
        _ => one(node, base, findings),
    }
}

fn one(node: &Node, base: &Path, findings: &mut Findings) -> Vec<ProviderSpec> {
    if let Some(id) = node.text() {
        let list =
            id.starts_with("file://") && matches!(files::extension(id).as_str(), "yaml" | "yml" | "json");
        if !list {
            return known(ProviderSpec::new(id, base), node, findings);
        }
        let path = files::resolve(base, id);
        return match document::read(&path, findings) {
            Ok(found) => read(&found, path.parent().unwrap_or(base), findings),
            Err(error) => {
                let message = format!("failed to read the list of providers: {error}");
                findings.add(Severity::Error, Some(&node.at), message);
                Vec::new()
            }
        };
    }
    let raw = node.to_value();
    let Some(map) = raw.as_object() else {
        let message = format!("a provider must be an id or a map with `id`, not {}", node.describe());
        findings.add(Severity::Error, Some(&node.at), message);
        return Vec::new();
    };
    let mut options = node;
    if map.get("id").is_none() {
        match node.entries() {
            [only] if only.value.is_map() => options = &only.value,
            _ => {
                let hint = "write `- id: openai:gpt-4o` with its options beside it";
                findings.hint(Severity::Error, Some(&node.at), "a provider without `id`", hint);
                return Vec::new();
            }
        }
    }
    for entry in options.entries() {
        if !KEYS.contains(&entry.key.as_str()) && !entry.key.starts_with("x-") {
            let message = format!("unknown key `{}` in a provider; it has no effect", entry.key);
            let near = nearest(&entry.key, KEYS.iter().copied());
            let hint = near.map_or_else(
                || "settings of the model go under `config`".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            findings.hint(Severity::Warning, Some(&entry.at), message, hint);
        }
    }
    ProviderSpec::from_value(&raw, base).map_or_else(Vec::new, |spec| known(spec, node, findings))
}

fn known(mut spec: ProviderSpec, node: &Node, findings: &mut Findings) -> Vec<ProviderSpec> {
    match check(&mut spec) {
        Ok(Family::Turns(_)) => {
            let problem = CallError::OnlyOfTests(spec.id).to_string();
            findings.add(Severity::Error, Some(&node.at), problem);
        }
        Ok(_) => return vec![spec],
        Err(error) => findings.add(Severity::Error, Some(&node.at), error.to_string()),
    }
    Vec::new()
}

/// Reports what is wrong with the provider that a test names in place of the suite's.
pub fn check_override(node: &Node, base: &Path, findings: &mut Findings) {
    let Some(mut spec) = ProviderSpec::of_test(&node.to_value(), base) else { return };
    // Variables are known when the row is run.
    if spec.id.contains("{{") {
        return;
    }
    if let Err(error) = check(&mut spec) {
        findings.add(Severity::Error, Some(&node.at), error.to_string());
    }
}

/// Reason why a provider cannot be called as its configuration has it.
#[derive(Debug, thiserror::Error)]
enum SpecError {
    /// The id belongs to no family.
    #[error(transparent)]
    Family(#[from] CallError),
    /// A setting is not supported; the text says what to do.
    #[error("{0}")]
    Setting(String),
    /// A file of data could not be read.
    #[error(transparent)]
    Data(#[from] ReferenceError),
    #[error("file of functions not found: `{}`", .0.display())]
    NoFunctions(PathBuf),
}

/// Returns the family of a provider, whose files of data are read and whose files of functions exist.
fn check(spec: &mut ProviderSpec) -> Result<Family, SpecError> {
    let family = provider::family_of(spec)?;
    if let Some(problem) = unsupported::setting(&spec.id, &family, &spec.config, &spec.base) {
        return Err(SpecError::Setting(problem));
    }
    if family.takes_data() {
        references::resolve_all(&mut spec.config, &spec.base)?;
        if let Some(missing) = settings::functions(&spec.config, &spec.base).find(|path| !path.is_file()) {
            return Err(SpecError::NoFunctions(missing));
        }
    }
    Ok(family)
}
