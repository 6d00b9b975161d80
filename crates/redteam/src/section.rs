//! The `redteam` section of a configuration.

use serde_json::{Map, Value};

use crate::attacker::HIDES;
use crate::category::Severity;
use crate::probe::Layer;

/// A plugin or a strategy with its settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Named {
    /// The id.
    pub id: String,
    /// How many probes of each category.
    pub tests: Option<usize>,
    /// The severity of a breach.
    pub severity: Option<Severity>,
    /// The settings.
    pub config: Map<String, Value>,
}

impl Named {
    /// Whether a plugin leaves out a strategy, by its setting `excludeStrategies`.
    pub fn excludes(&self, strategy: &str) -> bool {
        let out = self.config.get("excludeStrategies").and_then(Value::as_array);
        out.is_some_and(|out| out.iter().any(|id| id == strategy))
    }

    /// Whether a strategy is for a plugin: its setting `plugins` names some, or none.
    pub fn is_for(&self, plugin: &str) -> bool {
        let only = self.config.get("plugins").and_then(Value::as_array);
        only.is_none_or(|only| only.iter().any(|id| id == plugin))
    }
}

/// A role or a state of the target.
#[derive(Debug, Clone, PartialEq)]
pub struct Context {
    /// The name.
    pub id: String,
    /// Purpose of the target in it; that of the section if it is empty.
    pub purpose: String,
    /// Variables that its tests have.
    pub vars: Map<String, Value>,
}

/// Settings of a red team.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Purpose of the target.
    pub purpose: String,
    /// The variable that carries the attack.
    pub inject_var: Option<String>,
    /// The plugins.
    pub plugins: Vec<Named>,
    /// The strategies.
    pub strategies: Vec<Named>,
    /// How many probes of each category, where a plugin sets no other number.
    pub tests: Option<usize>,
    /// Layers to attack; those that the targets have, if none are named.
    pub layers: Vec<Layer>,
    /// Files of probes beside the built-in ones.
    pub probes: Vec<String>,
    /// The seed of choices.
    pub seed: u64,
    /// Severity from which a breach fails the run.
    pub fail_on: Option<Severity>,
    /// Languages of texts other than English.
    pub languages: Vec<String>,
    /// The model that writes attacks, as a configuration names a provider.
    pub provider: Option<Value>,
    /// Further instructions for it: `testGenerationInstructions`.
    pub instructions: Option<String>,
    /// Maximum number of characters of an attack that it writes: `maxCharsPerMessage`.
    pub max_characters: Option<usize>,
    /// Whether a model that goes on by the target's answers is not shown them: `excludeTargetOutputFromAgenticAttackGeneration`.
    pub hides_answers: bool,
    /// Roles or states of the target, each of which is attacked on its own.
    pub contexts: Vec<Context>,
    /// Verdicts that the operator has given, as examples for the model that grades.
    pub grader_examples: Vec<Value>,
    /// Names that attacks may have.
    pub entities: Vec<String>,
    /// Keys that have no effect.
    pub unknown: Vec<String>,
}

/// Reason why a section cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`redteam.{key}` must be {expected}")]
pub struct SectionError {
    /// The key.
    pub key: &'static str,
    /// Description of a value that is right.
    pub expected: &'static str,
}

/// Keys that are read, and keys of promptfoo's that have no effect offline but are common.
const KNOWN: &[&str] = &[
    "purpose",
    "injectVar",
    "plugins",
    "strategies",
    "numTests",
    "language",
    "provider",
    "layers",
    "probes",
    "seed",
    "failOn",
    "entities",
    "frameworks",
    "contexts",
    "testGenerationInstructions",
    "graderExamples",
    "maxCharsPerMessage",
    "maxConcurrency",
    "delay",
    "tracing",
    HIDES,
    "targets",
    "sharing",
    "metadata",
];

/// Reads a section.
///
/// # Errors
/// When a value has the wrong type.
pub fn read(section: &Value) -> Result<Section, SectionError> {
    let wrong = |key, expected| SectionError { key, expected };
    let empty = Map::new();
    let map = match section {
        Value::Null => &empty,
        Value::Object(map) => map,
        _ => return Err(wrong("", "a map")),
    };
    let given = |key: &str| map.get(key).filter(|value| !value.is_null());
    let text = |key: &'static str| match given(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(wrong(key, "text")),
    };
    let number = |key: &'static str| match given(key) {
        None => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| wrong(key, "a number from 0")),
    };
    let texts = |key: &'static str| -> Result<Vec<String>, SectionError> {
        let list = match given(key) {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) => list.clone(),
            Some(one) => vec![one.clone()],
        };
        let read = list.iter().map(|item| item.as_str().map(str::to_owned));
        read.collect::<Option<_>>().ok_or_else(|| wrong(key, "text, or a list of texts"))
    };
    let layers = texts("layers")?.iter().map(|name| Layer::named(name)).collect::<Option<Vec<_>>>();
    let severity = |name: &str| Severity::named(name);
    Ok(Section {
        purpose: text("purpose")?.unwrap_or_default(),
        inject_var: text("injectVar")?,
        plugins: named("plugins", given("plugins"), "default")?,
        strategies: named("strategies", given("strategies"), "")?,
        tests: number("numTests")?.map(|n| n as usize),
        layers: layers.ok_or_else(|| wrong("layers", "a list of gate, wall and model"))?,
        probes: texts("probes")?,
        seed: number("seed")?.unwrap_or(1),
        fail_on: match text("failOn")? {
            None => None,
            Some(name) => Some(
                severity(&name)
                    .ok_or_else(|| wrong("failOn", "critical, high, medium, low or informational"))?,
            ),
        },
        languages: foreign(&texts("language")?),
        provider: match given("provider") {
            None => None,
            Some(named @ (Value::String(_) | Value::Object(_))) => Some(named.clone()),
            Some(_) => return Err(wrong("provider", "the id of a provider, or a map with `id`")),
        },
        instructions: text("testGenerationInstructions")?,
        max_characters: number("maxCharsPerMessage")?.map(|n| n as usize),
        hides_answers: given(HIDES) == Some(&Value::Bool(true)),
        contexts: contexts(given("contexts"))?,
        grader_examples: given("graderExamples").and_then(Value::as_array).cloned().unwrap_or_default(),
        entities: texts("entities")?,
        unknown: map
            .keys()
            .filter(|key| !KNOWN.contains(&key.as_str()) && !key.starts_with("x-"))
            .cloned()
            .collect(),
    })
}

fn contexts(value: Option<&Value>) -> Result<Vec<Context>, SectionError> {
    let wrong =
        || SectionError { key: "contexts", expected: "a list of maps with `id`, `purpose` and `vars`" };
    let Some(value) = value else { return Ok(Vec::new()) };
    let text = |item: &Value, key: &str| item.get(key).and_then(Value::as_str).map(str::to_owned);
    let read = value.as_array().ok_or_else(wrong)?.iter().map(|item| {
        Some(Context {
            id: text(item, "id")?,
            purpose: text(item, "purpose").unwrap_or_default(),
            vars: item.get("vars").and_then(Value::as_object).cloned().unwrap_or_default(),
        })
    });
    read.collect::<Option<_>>().ok_or_else(wrong)
}

/// Returns the languages that are not English.
pub fn foreign(languages: &[String]) -> Vec<String> {
    let is_english = |name: &&String| matches!(name.to_lowercase().as_str(), "en" | "english");
    languages.iter().filter(|name| !is_english(name)).cloned().collect()
}

fn named(key: &'static str, value: Option<&Value>, default: &str) -> Result<Vec<Named>, SectionError> {
    let expected = "a list of ids, or of maps with `id`";
    let one = |id: &str| Named { id: id.to_owned(), ..Named::default() };
    let list = match value {
        None if default.is_empty() => return Ok(crate::strategy::DEFAULT.iter().map(|id| one(id)).collect()),
        None => return Ok(vec![one(default)]),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(SectionError { key, expected }),
    };
    let read = list.iter().map(|item| match item {
        Value::String(id) => Some(one(id)),
        Value::Object(map) => Some(Named {
            id: map.get("id")?.as_str()?.to_owned(),
            tests: map.get("numTests").and_then(Value::as_u64).map(|n| n as usize),
            severity: map.get("severity").and_then(Value::as_str).and_then(Severity::named),
            config: map.get("config").and_then(Value::as_object).cloned().unwrap_or_default(),
        }),
        _ => None,
    });
    read.collect::<Option<_>>().ok_or(SectionError { key, expected })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sections_of_promptfoo_are_read() {
        let section = read(&json!({
            "purpose": "a code runner", "numTests": 3, "injectVar": "code", "language": ["English", "German"],
            "plugins": ["sandbox:escape", {"id": "intent", "numTests": 1, "severity": "low", "config": {"intent": ["x"]}}],
            "strategies": ["basic", {"id": "layer", "config": {"steps": ["base64"]}}], "mystery": 1,
        }))
        .unwrap();
        assert_eq!(section.plugins[1].severity, Some(Severity::Low));
        assert_eq!(section.strategies[1].config["steps"], json!(["base64"]));
        assert_eq!((section.tests, section.inject_var.as_deref()), (Some(3), Some("code")));
        assert_eq!(
            (section.languages, section.unknown),
            (vec!["German".to_owned()], vec!["mystery".to_owned()])
        );
    }

    #[test]
    fn nothing_means_the_defaults() {
        let section = read(&Value::Null).unwrap();
        assert_eq!(section.plugins[0].id, "default");
        assert_eq!(section.strategies.len(), crate::strategy::DEFAULT.len());
        assert!(read(&json!({"plugins": "x"})).is_err());
        assert!(read(&json!({"failOn": "severe"})).is_err());
        assert!(read(&json!({"layers": ["moat"]})).is_err());
        assert!(read(&json!({"contexts": [{"purpose": "without a name"}]})).is_err());
    }
}
