//! Providers as configurations name them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::config::Findings;
use crate::config::diagnostic::Severity;
use crate::config::files;
use crate::config::node::{Kind, Node};
use crate::model::Object;

const KEYS: &[&str] = &["id", "label", "config", "prompts", "transform", "delay", "env", "inputs"];

/// A provider that was named, but not made yet.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderSpec {
    /// As in `openai:gpt-4o`.
    pub id: String,
    /// What tests and filters call it.
    pub label: Option<String>,
    /// Its settings.
    pub config: Object,
    /// The prompts it is for; all if there are none.
    pub prompts: Vec<String>,
    /// A transform of its outputs.
    pub transform: Option<Value>,
    /// Milliseconds to wait after a call.
    pub delay: Option<f64>,
    /// Variables for it alone.
    pub env: Object,
    /// The directory its paths begin at.
    pub base: PathBuf,
    /// As written.
    pub raw: Value,
}

impl ProviderSpec {
    /// One with an id and nothing else.
    pub fn new(id: &str, base: &Path) -> Self {
        Self::of(id, &Object::new(), json!(id), base)
    }

    /// The name shown: the label, else the id.
    pub fn name(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.id)
    }

    fn of(id: &str, options: &Object, raw: Value, base: &Path) -> Self {
        let map = |key: &str| options.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
        let config = map("config");
        let prompts = options.get("prompts").and_then(Value::as_array).into_iter().flatten();
        Self {
            id: id.to_owned(),
            label: options.get("label").and_then(Value::as_str).map(str::to_owned),
            prompts: prompts.filter_map(Value::as_str).map(str::to_owned).collect(),
            transform: options.get("transform").or_else(|| config.get("transform")).cloned(),
            delay: options.get("delay").or_else(|| config.get("delay")).and_then(Value::as_f64),
            env: map("env"),
            base: base.to_owned(),
            config,
            raw,
        }
    }

    /// Reads one from a value in a test or an assertion: an id, or a map.
    pub fn from_value(value: &Value, base: &Path) -> Option<Self> {
        match value {
            Value::String(id) => Some(Self::new(id, base)),
            Value::Object(map) => match map.get("id").and_then(Value::as_str) {
                Some(id) => Some(Self::of(id, map, value.clone(), base)),
                None => {
                    let (id, options) = map.iter().next()?;
                    Some(Self::of(id, options.as_object()?, value.clone(), base))
                }
            },
            _ => None,
        }
    }
}

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
        return match crate::config::document::read(&path, findings) {
            Ok(found) => read(&found, path.parent().unwrap_or(base), findings),
            Err(error) => {
                findings.add(
                    Severity::Error,
                    Some(&node.at),
                    format!("the list of providers was not read: {error}"),
                );
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
            let message = format!("`{}` is no key of a provider; it has no effect", entry.key);
            let near = crate::config::diagnostic::nearest(&entry.key, KEYS.iter().copied());
            let hint = near.map_or_else(
                || "settings of the model go under `config`".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            findings.hint(Severity::Warning, Some(&entry.at), message, hint);
        }
    }
    ProviderSpec::from_value(&raw, base).map_or_else(Vec::new, |spec| known(spec, node, findings))
}

fn known(spec: ProviderSpec, node: &Node, findings: &mut Findings) -> Vec<ProviderSpec> {
    if let Err(problem) = super::kind_of(&spec) {
        findings.add(Severity::Error, Some(&node.at), problem);
        return Vec::new();
    }
    vec![spec]
}

/// Whether a provider is meant by an entry of a test's `providers`.
pub fn is_meant(spec: &ProviderSpec, entry: &str) -> bool {
    let names = [Some(spec.id.as_str()), spec.label.as_deref()];
    names.into_iter().flatten().any(|name| {
        name == entry
            || entry.strip_suffix('*').is_some_and(|prefix| name.starts_with(prefix))
            || name.strip_prefix(entry).is_some_and(|rest| rest.starts_with(':'))
    })
}
