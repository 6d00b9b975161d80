//! Providers as configurations name them.

use std::path::{Path, PathBuf};

use sandcove_redteam::attacker::{self, Attacker};
use serde_json::{Value, json};

use crate::model::Object;
use crate::reading::Env;

/// A provider as a configuration names it, before it is made.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderSpec {
    /// The id, as in `openai:gpt-4o`.
    pub id: String,
    /// The name that tests and filters use.
    pub label: Option<String>,
    /// The settings.
    pub config: Object,
    /// The prompts that the provider gets, by label or id; all if none are listed.
    pub prompts: Option<Vec<String>>,
    /// The transform of outputs.
    pub transform: Option<Value>,
    /// Milliseconds to wait after a call.
    pub delay: Option<f64>,
    /// The environment variables of the provider.
    pub env: Object,
    /// The directory that paths are relative to.
    pub base: PathBuf,
    /// The specification as written.
    pub raw: Value,
}

impl ProviderSpec {
    /// A specification of an id and nothing else.
    pub fn new(id: &str, base: &Path) -> Self {
        Self::of(id, &Object::new(), json!(id), base)
    }

    /// Returns the name that is shown: the label, else the id.
    pub fn name(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.id)
    }

    fn of(id: &str, options: &Object, raw: Value, base: &Path) -> Self {
        let map = |key: &str| options.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
        let config = map("config");
        let prompts = options.get("prompts").and_then(Value::as_array);
        Self {
            id: id.to_owned(),
            label: options.get("label").and_then(Value::as_str).map(str::to_owned),
            prompts: prompts.map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect()),
            transform: options.get("transform").filter(|code| !code.is_null()).cloned(),
            delay: options.get("delay").or_else(|| config.get("delay")).and_then(Value::as_f64),
            env: map("env"),
            base: base.to_owned(),
            config,
            raw,
        }
    }

    /// Reads the provider that a test names in place of the suite's. A map without an id is none: it may name graders.
    pub fn of_test(value: &Value, base: &Path) -> Option<Self> {
        let named = value.is_string() || value.get("id").is_some_and(Value::is_string);
        Self::from_value(value, base).filter(|_| named)
    }

    /// Reads a specification from a value in a test or an assertion: an id, or a map.
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

/// Returns the id of the model that grades and generates where nothing names one, by what keys there are.
pub fn default_model(env: &Env) -> Option<&'static str> {
    let has = |name: &str| env.get(name).is_some_and(|key| !key.is_empty());
    if has("OPENAI_API_KEY") {
        Some("openai:chat:gpt-5.5-2026-04-23")
    } else if has("ANTHROPIC_API_KEY") {
        Some("anthropic:messages:claude-sonnet-4-5")
    } else {
        None
    }
}

/// A provider that asks the one of the row several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turns {
    /// `sequence`: prompts, one after the other.
    Sequence,
    /// `promptfoo:simulated-user`: a conversation with a model that plays a user.
    SimulatedUser,
    /// `promptfoo:redteam:…`: a model that attacks, by what is answered.
    Attacker(&'static Attacker),
}

impl Turns {
    /// Returns the provider of an id.
    pub fn of(id: &str) -> Option<Self> {
        match id {
            "sequence" => Some(Self::Sequence),
            "promptfoo:simulated-user" => Some(Self::SimulatedUser),
            _ => attacker::of_provider(id).map(Self::Attacker),
        }
    }
}

/// Whether a provider matches an entry of a test's `providers`.
pub fn is_meant(spec: &ProviderSpec, entry: &str) -> bool {
    let names = [Some(spec.id.as_str()), spec.label.as_deref()];
    names.into_iter().flatten().any(|name| {
        name == entry
            || entry.strip_suffix('*').is_some_and(|prefix| name.starts_with(prefix))
            || name.strip_prefix(entry).is_some_and(|rest| rest.starts_with(':'))
    })
}
