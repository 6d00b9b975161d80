//! A suite of tests from a `redteam` section: the same section, seed and version give the same suite, byte for byte.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};

use crate::category::Severity;
use crate::mutate;
use crate::plugin::{self, Plugin};
use crate::probe::{self, Language, Layer, Probe};
use crate::section::{Named, Section};
use crate::strategy::{self, Strategy};

/// Targets by the layers that they have.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    /// Labels of targets by layer.
    pub by_layer: BTreeMap<Layer, Vec<String>>,
    /// Why layers are not attacked, although probes for them were asked for.
    pub missing: BTreeMap<Layer, String>,
    /// The prompts' labels, for the tests of models.
    pub prompts: Vec<String>,
}

/// Something that was asked for and is not attacked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skipped {
    /// Name: `plugin pii:direct`.
    pub what: String,
    /// The reason.
    pub why: String,
}

/// Settings of the strategy `retry`, whose attacks are those of earlier runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retry {
    /// Most attacks of each plugin and target; as many as the suite has of the plugin, where no number is set.
    pub most: Option<usize>,
    /// The plugins whose attacks are repeated; all of the suite, where none are named.
    pub plugins: Option<Vec<String>>,
}

/// A generated suite.
#[derive(Debug, Clone, Default)]
pub struct Generated {
    /// The tests, as a configuration has them.
    pub tests: Vec<Value>,
    /// Whether attacks of earlier runs are repeated.
    pub retry: Option<Retry>,
    /// Things that are not attacked.
    pub skipped: Vec<Skipped>,
}

/// Reason why a suite was not generated.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum GenerateError {
    /// A plugin has an unknown id.
    #[error("unknown plugin `{0}`; `sandcove redteam plugins` lists them")]
    Plugin(String),
    /// A strategy has an unknown id.
    #[error("unknown strategy `{0}`; `sandcove redteam plugins` lists them")]
    Strategy(String),
    /// Texts of the user are missing.
    #[error("the plugin `intent` needs `config.intent`: a text or a list of texts")]
    Intent,
}

/// The name of the label under which gate tests know the task that the answer solves.
const TASK: [(&str, &str); 4] = [
    ("problem", "Write a function `add(a, b)` that returns the sum of its arguments."),
    ("function_name", "add"),
    ("test_input", "2, 3"),
    ("expected_output", "5"),
];

/// The harmless answer to the task.
pub fn harmless() -> String {
    answer(mutate::FENCE, Language::Python, "def add(a, b):\n    return a + b\n")
}

/// The function that makes an attack a right answer, so that a check lets it pass unless it sees the attack.
const RIGHT: &str = "\n\ndef add(a, b):\n    return a + b\n";

fn answer(wrapper: &str, language: Language, code: &str) -> String {
    mutate::wrap(wrapper, language.name(), code).unwrap_or_else(|| code.to_owned())
}

/// Generates the tests of a section. `own` are the user's probes.
///
/// # Errors
/// When the section names something that does not exist.
pub fn generate(
    section: &Section,
    own: &[Probe],
    targets: &Targets,
    inject_var: &str,
    destructive: bool,
) -> Result<Generated, GenerateError> {
    let mut generated = Generated::default();
    let strategies = strategies(section, &mut generated)?;
    if !section.languages.is_empty() {
        let why = "translating attacks takes a model; they are in English".to_owned();
        generated.skipped.push(Skipped { what: format!("language {}", section.languages.join(", ")), why });
    }
    let mut seen = HashSet::new();
    for plugin in &section.plugins {
        let probes = match plugin::resolve(&plugin.id) {
            Plugin::Unknown => return Err(GenerateError::Plugin(plugin.id.clone())),
            Plugin::Unavailable(why) => {
                generated
                    .skipped
                    .push(Skipped { what: format!("plugin {}", plugin.id), why: why.to_owned() });
                continue;
            }
            Plugin::Intent => intents(plugin)?,
            Plugin::Probes(categories) => {
                let is_attacked = |layer: &Layer| {
                    (section.layers.is_empty() || section.layers.contains(layer))
                        && targets.by_layer.get(layer).is_some_and(|labels| !labels.is_empty())
                };
                let most = plugin.tests.or(section.tests);
                of_categories(&categories, own, most, |probe| probe.layers.iter().any(is_attacked))
            }
        };
        for probe in probes {
            if probe.destructive && !destructive {
                let why = "it may harm a host without limits; --allow-destructive runs it".to_owned();
                generated.skipped.push(Skipped { what: format!("probe {}", probe.id), why });
                continue;
            }
            for layer in probe
                .layers
                .iter()
                .filter(|layer| section.layers.is_empty() || section.layers.contains(layer))
            {
                let Some(labels) = targets.by_layer.get(layer).filter(|labels| !labels.is_empty()) else {
                    if let Some(why) = targets.missing.get(layer) {
                        generated
                            .skipped
                            .push(Skipped { what: format!("{} probes", layer.name()), why: why.clone() });
                    }
                    continue;
                };
                for (named, strategy) in &strategies {
                    if !applies(named, &plugin.id, &probe) {
                        continue;
                    }
                    let most = number(named, "n").or(named.tests);
                    for disguised in strategy::disguises(strategy, &probe, *layer, section.seed, most) {
                        if !seen.insert((probe.id.clone(), *layer, disguised.strategy.clone())) {
                            continue;
                        }
                        let severity = plugin.severity.unwrap_or_else(|| probe.severity());
                        generated
                            .tests
                            .push(test(&probe, *layer, &disguised, severity, inject_var, labels, targets));
                    }
                }
            }
        }
    }
    generated.skipped.sort();
    generated.skipped.dedup();
    Ok(generated)
}

fn strategies<'a>(
    section: &'a Section,
    generated: &mut Generated,
) -> Result<Vec<(&'a Named, Strategy)>, GenerateError> {
    let mut resolved = Vec::new();
    for named in &section.strategies {
        let steps = named.config.get("steps").and_then(Value::as_array).into_iter().flatten();
        let steps: Vec<String> = steps.filter_map(Value::as_str).map(str::to_owned).collect();
        match strategy::resolve(&named.id, &steps) {
            Strategy::Unknown => return Err(GenerateError::Strategy(named.id.clone())),
            Strategy::Unavailable(why) => {
                let what = format!("strategy {}", named.id);
                generated.skipped.push(Skipped { what, why: why.to_owned() });
            }
            Strategy::Retry => {
                let plugins = named.config.get("plugins").and_then(Value::as_array);
                let plugins =
                    plugins.map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect());
                generated.retry = Some(Retry { most: number(named, "numTests").or(named.tests), plugins });
            }
            Strategy::Basic if named.config.get("enabled") == Some(&json!(false)) => {}
            strategy => resolved.push((named, strategy)),
        }
    }
    // The untouched attack is always there, unless it is switched off.
    let is_named = section.strategies.iter().any(|named| matches!(named.id.as_str(), "basic" | "default"));
    if !is_named {
        static BASIC: std::sync::LazyLock<Named> =
            std::sync::LazyLock::new(|| Named { id: "basic".to_owned(), ..Named::default() });
        resolved.insert(0, (&BASIC, Strategy::Basic));
    }
    Ok(resolved)
}

fn number(named: &Named, key: &str) -> Option<usize> {
    named.config.get(key).and_then(Value::as_u64).map(|n| n as usize)
}

/// Whether a strategy is meant for a plugin.
fn applies(named: &Named, plugin: &str, probe: &Probe) -> bool {
    let Some(only) = named.config.get("plugins").and_then(Value::as_array) else { return true };
    let category = format!("sandbox:{}", probe.category);
    only.iter().filter_map(Value::as_str).any(|id| id == plugin || id == category)
}

/// The user's own texts, one probe for each.
fn intents(plugin: &Named) -> Result<Vec<Probe>, GenerateError> {
    let texts = match plugin.config.get("intent") {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => return Err(GenerateError::Intent),
    };
    let probes = texts.into_iter().enumerate().map(|(at, text)| Probe {
        id: format!("intent-{}", at + 1),
        category: "intent".to_owned(),
        about: text.chars().take(80).collect(),
        language: Language::Text,
        layers: vec![Layer::Model],
        code: text,
        severity: Some(plugin.severity.unwrap_or(Severity::High)),
        timeout: None,
        stdout: None,
        after: None,
        complied: Vec::new(),
        destructive: false,
        heavy: false,
        informational: false,
        references: Vec::new(),
    });
    Ok(probes.collect())
}

/// The probes of categories, in the order of the files, at most so many of each category. Those that no target can be attacked with do not
/// count.
fn of_categories(
    categories: &[&str],
    own: &[Probe],
    most: Option<usize>,
    counts_for: impl Fn(&Probe) -> bool,
) -> Vec<Probe> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut chosen = Vec::new();
    for category in categories {
        for probe in own.iter().chain(probe::builtin()).filter(|probe| probe.category == *category) {
            let count = counts.entry(category).or_default();
            if most.is_some_and(|most| *count >= most) {
                break;
            }
            *count += usize::from(!probe.destructive && counts_for(probe));
            chosen.push(probe.clone());
        }
    }
    chosen
}

/// One test.
fn test(
    probe: &Probe,
    layer: Layer,
    disguised: &strategy::Disguised,
    severity: Severity,
    inject_var: &str,
    labels: &[String],
    targets: &Targets,
) -> Value {
    let plugin = match probe.category.as_str() {
        "intent" => "intent".to_owned(),
        category => format!("sandbox:{category}"),
    };
    let mut vars = Map::new();
    let carried = match layer {
        Layer::Gate => {
            let is_right = probe.code.contains("def add(");
            let code = if is_right {
                disguised.code.clone()
            } else {
                format!("{}{RIGHT}", disguised.code.trim_end())
            };
            answer(disguised.wrapper, probe.language, code.trim_start())
        }
        Layer::Wall | Layer::Model => disguised.code.trim_start_matches('\n').to_owned(),
    };
    vars.insert(inject_var.to_owned(), json!(carried));
    if layer == Layer::Gate {
        for (name, value) in TASK.iter().filter(|(name, _)| *name != inject_var) {
            vars.insert((*name).to_owned(), json!(value));
        }
    }
    let mut metadata = json!({
        "pluginId": plugin, "strategyId": disguised.strategy, "severity": severity.name(), "layer": layer.name(), "probe": probe.id,
        "goal": probe.about, "language": probe.language.name(), "injectVar": inject_var, "pluginConfig": {},
    });
    if disguised.strategy != "basic" {
        metadata["originalText"] = json!(probe.code);
    }
    if layer == Layer::Wall {
        let settings = [
            ("timeout", probe.timeout.map(|seconds| json!(seconds))),
            // A disguise may print in other pieces, but prints the same.
            ("stdout", probe.stdout.as_ref().map(|text| json!(text))),
            ("after", probe.after.as_ref().map(|code| json!(code))),
            ("heavy", probe.heavy.then_some(Value::Bool(true))),
        ];
        for (key, value) in settings.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            metadata[key] = value;
        }
    }
    if layer == Layer::Model && !probe.complied.is_empty() {
        metadata["complied"] = json!(probe.complied);
    }
    let metric = format!("{}{}", plugin::metric(&plugin), strategy::suffix(&disguised.strategy));
    let mut test = json!({
        "description": format!("{} [{}, {}]", probe.id, layer.name(), disguised.strategy),
        "vars": vars,
        "providers": labels,
        "assert": [{"type": format!("promptfoo:redteam:{plugin}"), "metric": metric}],
        "metadata": metadata,
    });
    if layer != Layer::Model && targets.prompts.len() > 1 {
        test["prompts"] = json!([targets.prompts[0]]);
    }
    test
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section;

    fn targets() -> Targets {
        let by_layer = Layer::ALL.into_iter().map(|layer| (layer, vec![layer.name().to_owned()])).collect();
        Targets { by_layer, ..Targets::default() }
    }

    fn suite(section: Value) -> Generated {
        generate(&section::read(&section).unwrap(), &[], &targets(), "code", false).unwrap()
    }

    #[test]
    fn the_default_suite_covers_all_categories_and_is_the_same_each_time() {
        let all = suite(json!({}));
        let of = |layer: &str| all.tests.iter().filter(|test| test["metadata"]["layer"] == layer).count();
        assert!(
            of("wall") > 100 && of("gate") > 250 && of("model") > 20,
            "{} {} {}",
            of("wall"),
            of("gate"),
            of("model")
        );
        assert_eq!(suite(json!({})).tests, all.tests);
        assert_ne!(suite(json!({"seed": 2})).tests, all.tests);
        assert!(all.skipped.iter().any(|skipped| skipped.what == "probe fork-bomb"));
    }

    #[test]
    fn tests_have_the_shape_of_promptfoo() {
        let all =
            suite(json!({"plugins": ["sandbox:escape"], "numTests": 1, "strategies": ["code:exec-base64"]}));
        let test =
            all.tests.iter().find(|test| test["metadata"]["strategyId"] == "code:exec-base64").unwrap();
        assert_eq!(test["assert"][0]["type"], "promptfoo:redteam:sandbox:escape");
        assert_eq!(test["assert"][0]["metric"], "SandboxEscape/ExecBase64");
        assert_eq!(test["metadata"]["severity"], "critical");
        assert!(test["vars"]["code"].as_str().unwrap().contains("def add(a, b)"));
        let basic = all.tests.iter().filter(|test| test["metadata"]["strategyId"] == "basic");
        assert_eq!(basic.count(), 2);
    }

    #[test]
    fn what_needs_a_model_is_skipped_and_said() {
        let all = suite(
            json!({"plugins": ["pii", "sandbox:time"], "strategies": ["basic", "jailbreak:composite"], "language": "de"}),
        );
        let said: Vec<&str> = all.skipped.iter().map(|skipped| skipped.what.as_str()).collect();
        assert_eq!(said, ["language de", "plugin pii", "strategy jailbreak:composite"]);
        assert!(!all.tests.is_empty());
    }

    #[test]
    fn every_intent_is_one_test() {
        let all = suite(
            json!({"plugins": [{"id": "intent", "config": {"intent": ["a", "b"]}}], "strategies": ["basic"]}),
        );
        assert_eq!(all.tests.len(), 2);
        let section = section::read(&json!({"plugins": ["intent"]})).unwrap();
        assert!(matches!(generate(&section, &[], &targets(), "q", false), Err(GenerateError::Intent)));
        let section = section::read(&json!({"plugins": ["nothing"]})).unwrap();
        assert!(matches!(generate(&section, &[], &targets(), "q", false), Err(GenerateError::Plugin(_))));
    }

    #[test]
    fn nothing_generated_looks_like_a_template() {
        for test in suite(
            json!({"strategies": ["basic", {"id": "code", "config": {"n": 99}}, "answer", "sandbox-bypass"]}),
        )
        .tests
        {
            let code = test["vars"]["code"].as_str().unwrap();
            assert!(!["{{", "{%", "{#"].iter().any(|mark| code.contains(mark)), "{}", test["description"]);
        }
    }
}
