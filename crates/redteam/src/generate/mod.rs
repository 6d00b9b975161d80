//! A suite of tests from a `redteam` section: the same section, seed and version give the same suite, byte for byte.

mod strategies;

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::attack;
use crate::attacker::{self, Attacker};
use crate::category::Severity;
use crate::mutate;
use crate::plugin::{self, Plugin};
use crate::probe::{self, Language, Layer, Probe};
use crate::section::{Named, Section};
use crate::strategy::{self, Disguised, Strategy};
use crate::wish::{self, Rewrite, Wish};
use strategies::{attacker_step, number, strategies};

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
    /// Maximum number of attacks of each plugin and target; as many as the suite has of the plugin, where no number is set.
    pub most: Option<usize>,
    /// The plugins whose attacks are repeated; all of the suite, where none are named.
    pub plugins: Option<Vec<String>>,
}

/// A generated suite.
#[derive(Debug, Clone, Default)]
pub struct Generated {
    /// The tests, as a configuration has them.
    pub tests: Vec<Value>,
    /// Attacks that a model is to write in another form.
    pub rewrites: Vec<Rewrite>,
    /// Whether attacks of earlier runs are repeated.
    pub retry: Option<Retry>,
    /// Strategies that are programs of the user's.
    pub programs: Vec<Named>,
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
    #[error("the plugin `intent` needs `config.intent`: a text, or a list of texts and of lists of texts")]
    Intent,
    /// The way to attack is missing.
    #[error("the strategy `{0}` needs `config.strategyText`: how the attacker goes about it")]
    Custom(String),
    /// The rule of the operator is missing.
    #[error("the plugin `policy` needs `config.policy`: the rule that the attacks break")]
    Policy,
}

/// The setting of examples for the model that grades.
const EXAMPLES: &str = "graderExamples";

/// Reason why attacks are skipped that a model would write.
pub const NO_MODEL: &str = "a model writes its attacks; name one in `redteam.provider`";

/// Generates the tests of a section. `own` are the user's probes, and `written` the attacks that a model has written for each of the section's
/// [`wishes`](wish::wishes); without a model there are none.
///
/// # Errors
/// When the section names something that does not exist.
pub fn generate(
    section: &Section,
    own: &[Probe],
    targets: &Targets,
    inject_var: &str,
    destructive: bool,
    written: Option<&[Vec<String>]>,
) -> Result<Generated, GenerateError> {
    let mut generated = Generated::default();
    let strategies = strategies(section, written.is_some(), &mut generated)?;
    let mut maker = Maker { section, targets, inject_var, strategies, seen: HashSet::new(), generated };
    let mut written = written.map(<[_]>::iter);
    for plugin in &wish::expanded(section) {
        if !wish::is_complete(plugin) {
            return Err(GenerateError::Policy);
        }
        let probes = match plugin::resolve(&plugin.id) {
            Plugin::Unknown => return Err(GenerateError::Plugin(plugin.id.clone())),
            Plugin::Unavailable(why) => {
                maker.skip(format!("plugin {}", plugin.id), why);
                continue;
            }
            Plugin::Written(_) => match &mut written {
                None => {
                    maker.skip(format!("plugin {}", plugin.id), NO_MODEL);
                    continue;
                }
                Some(written) => {
                    let texts = written.next().map(Vec::as_slice).unwrap_or_default();
                    Wish::of(plugin.clone(), section)
                        .map(|wish| maker.wished(&wish, texts))
                        .unwrap_or_default()
                }
            },
            // They are expanded.
            Plugin::Several(_) => continue,
            Plugin::Intent => intents(plugin)?,
            Plugin::Probes(categories) => {
                let most = plugin.tests.or(section.tests);
                of_categories(&categories, own, most, |probe| {
                    probe.layers.iter().any(|layer| maker.attacks(*layer))
                })
            }
        };
        for probe in probes {
            if probe.destructive && !destructive {
                maker.skip(
                    format!("probe {}", probe.id),
                    "it may harm a host without limits; --allow-destructive runs it",
                );
                continue;
            }
            maker.add(plugin, &probe);
        }
    }
    let mut generated = maker.generated;
    generated.skipped.sort();
    generated.skipped.dedup();
    Ok(generated)
}

/// A suite in the making.
struct Maker<'a> {
    section: &'a Section,
    targets: &'a Targets,
    inject_var: &'a str,
    strategies: Vec<(Named, Strategy)>,
    /// Probes with their layer and disguise that the suite has.
    seen: HashSet<(String, Layer, String)>,
    generated: Generated,
}

impl Maker<'_> {
    fn skip(&mut self, what: String, why: &str) {
        self.generated.skipped.push(Skipped { what, why: why.to_owned() });
    }

    /// Whether attacks on a layer are asked for.
    fn asks_for(&self, layer: Layer) -> bool {
        self.section.layers.is_empty() || self.section.layers.contains(&layer)
    }

    /// Whether a layer is attacked.
    fn attacks(&self, layer: Layer) -> bool {
        self.asks_for(layer) && self.targets.by_layer.get(&layer).is_some_and(|labels| !labels.is_empty())
    }

    /// The attacks that a model has written for a plugin.
    fn wished(&mut self, wish: &Wish, texts: &[String]) -> Vec<Probe> {
        let id = &wish.plugin.id;
        if texts.is_empty() {
            let missing = self.targets.missing.get(&Layer::Model).filter(|_| !self.attacks(Layer::Model));
            self.skip(
                format!("plugin {id}"),
                missing.map_or("the model has written no attacks", String::as_str),
            );
        }
        // A plugin may be there several times, with other settings.
        let name = id.strip_prefix("file://").unwrap_or(id).replace([':', '/'], "-");
        let probe = |text: &String| {
            spoken(&format!("{name}-{}", digest(text, 4)), id, &wish.aim, text, wish.severity)
        };
        texts.iter().map(probe).collect()
    }

    /// Adds the tests of a probe.
    fn add(&mut self, plugin: &Named, probe: &Probe) {
        for layer in &probe.layers {
            if !self.attacks(*layer) {
                if let Some(why) = self.targets.missing.get(layer).filter(|_| self.asks_for(*layer)) {
                    self.skip(format!("{} probes", layer.name()), why);
                }
                continue;
            }
            for (named, strategy) in self.strategies.clone() {
                let is_changed = !matches!(strategy, Strategy::Basic);
                if !applies(&named, &plugin.id, probe)
                    || plugin.excludes(&named.id)
                    // Several messages are sent as they are.
                    || (is_changed && !probe.messages.is_empty())
                {
                    continue;
                }
                let most = number(&named, "n").or(named.tests);
                for disguised in strategy::disguises(&strategy, probe, *layer, self.section.seed, most) {
                    if self.seen.insert((probe.id.clone(), *layer, disguised.strategy.clone())) {
                        let test = self.test(plugin, probe, *layer, &disguised);
                        self.generated.tests.push(test);
                    }
                }
                match (&strategy, *layer) {
                    (Strategy::Rewritten(form), Layer::Model) => self.rewrite(plugin, probe, &named, form),
                    (Strategy::Attacked { by, layers }, Layer::Model) => {
                        self.attacked(plugin, probe, &named, by, layers);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Adds an attack that a model is to write in another form.
    fn rewrite(&mut self, plugin: &Named, probe: &Probe, named: &Named, form: &str) {
        for (language, form) in wish::forms(form, named) {
            let disguise = format!("{} {}", named.id, language.as_deref().unwrap_or_default());
            if !self.seen.insert((probe.id.clone(), Layer::Model, disguise)) {
                continue;
            }
            let disguised =
                Disguised { strategy: named.id.clone(), code: probe.code.clone(), wrapper: mutate::FENCE };
            let mut test = self.test(plugin, probe, Layer::Model, &disguised);
            if let Some(language) = language {
                test["description"] = json!(format!("{} [model, {} {language}]", probe.id, named.id));
                test["metadata"]["language"] = json!(language);
            }
            self.generated.rewrites.push(Rewrite { test, form });
        }
    }

    /// Adds an attack that goes on by what the target answers.
    fn attacked(&mut self, plugin: &Named, probe: &Probe, named: &Named, by: &Attacker, layers: &[String]) {
        let own = if named.id == "layer" { attacker_step(named) } else { Some(named.clone()) };
        let Some(own) = own else { return };
        let strategy = std::iter::once(own.id.as_str()).chain(layers.iter().map(String::as_str));
        let strategy = strategy.collect::<Vec<_>>().join("/");
        if !self.seen.insert((probe.id.clone(), Layer::Model, strategy.clone())) {
            return;
        }
        let disguised = Disguised { strategy, code: probe.code.clone(), wrapper: mutate::FENCE };
        let mut test = self.test(plugin, probe, Layer::Model, &disguised);
        let mut config = own.config;
        config.retain(|key, _| !["plugins", "numTests", "n", "steps"].contains(&key.as_str()));
        config.insert("injectVar".to_owned(), json!(self.inject_var));
        if let Some(most) = self.section.max_characters {
            config.entry("maxCharsPerMessage").or_insert_with(|| json!(most));
        }
        if self.section.hides_answers {
            config.insert(attacker::HIDES.to_owned(), json!(true));
        }
        if !layers.is_empty() {
            config.insert(attacker::LAYERS.to_owned(), json!(layers));
        }
        let provider = own
            .id
            .strip_prefix(attacker::CUSTOM)
            .map_or_else(|| by.provider.clone(), |variant| format!("{}{variant}", attacker::CUSTOM));
        test["provider"] = json!({"id": format!("{}{provider}", attacker::PREFIX), "config": config});
        self.generated.tests.push(test);
    }

    fn test(&self, plugin: &Named, probe: &Probe, layer: Layer, disguised: &Disguised) -> Value {
        let labels = self.targets.by_layer.get(&layer).map(Vec::as_slice).unwrap_or_default();
        let severity = plugin.severity.unwrap_or_else(|| probe.severity());
        let mut test =
            attack::test(probe, layer, disguised, severity, self.inject_var, labels, &self.targets.prompts);
        let mut config = plugin.config.clone();
        // The attack is made of them.
        config.retain(|key, _| !["intent", "generator"].contains(&key.as_str()));
        if !self.section.grader_examples.is_empty() {
            let own = config.remove(EXAMPLES);
            let own = own.as_ref().and_then(Value::as_array).into_iter().flatten();
            let all = self.section.grader_examples.iter().chain(own).cloned();
            config.insert(EXAMPLES.to_owned(), all.collect());
        }
        test["metadata"]["pluginConfig"] = Value::Object(config);
        if !probe.messages.is_empty() {
            let messages: Vec<String> = probe.messages.iter().map(|text| attack::literal(text)).collect();
            test["provider"] = json!({"id": "sequence", "config": {"inputs": messages}});
        }
        if let (plugin::RULE, Some(rule)) = (plugin.id.as_str(), plugin.config.get("policy")) {
            let rule = rule.get("text").unwrap_or(rule).clone();
            let (number, suffix) = (digest(&rule.to_string(), 6), strategy::suffix(&disguised.strategy));
            test["assert"][0]["metric"] = json!(format!("PolicyViolation:{number}{suffix}"));
            test["metadata"]["policy"] = rule;
        }
        test
    }
}

/// The first bytes of the digest of a text, in hexadecimal digits.
fn digest(text: &str, bytes: usize) -> String {
    Sha256::digest(text).iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a strategy is meant for a plugin.
fn applies(named: &Named, plugin: &str, probe: &Probe) -> bool {
    named.is_for(plugin) || named.is_for(&format!("sandbox:{}", probe.category))
}

/// The user's own texts, one probe for each. A list in place of a text is several messages.
fn intents(plugin: &Named) -> Result<Vec<Probe>, GenerateError> {
    let list = match plugin.config.get("intent") {
        Some(Value::Array(list)) if !list.is_empty() => list.clone(),
        Some(text @ Value::String(_)) => vec![text.clone()],
        _ => return Err(GenerateError::Intent),
    };
    let severity = plugin.severity.unwrap_or(Severity::High);
    let about = |text: &str| text.chars().take(80).collect::<String>();
    let mut probes = Vec::with_capacity(list.len());
    for (at, item) in list.iter().enumerate() {
        let texts = match item {
            Value::String(text) => Some(vec![text.clone()]),
            Value::Array(several) => {
                several.iter().map(|text| text.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
            }
            _ => None,
        };
        let Some([first, rest @ ..]) = texts.as_deref() else { return Err(GenerateError::Intent) };
        let mut probe = spoken(&format!("intent-{}", at + 1), "intent", &about(first), first, severity);
        if !rest.is_empty() {
            probe.messages = texts.unwrap_or_default();
        }
        probes.push(probe);
    }
    Ok(probes)
}

/// A text for models.
fn spoken(id: &str, plugin: &str, about: &str, text: &str, severity: Severity) -> Probe {
    Probe {
        id: id.to_owned(),
        category: plugin.to_owned(),
        about: about.to_owned(),
        language: Language::Text,
        layers: vec![Layer::Model],
        code: text.to_owned(),
        messages: Vec::new(),
        severity: Some(severity),
        timeout: None,
        stdout: None,
        after: None,
        complied: Vec::new(),
        destructive: false,
        heavy: false,
        informational: false,
        references: Vec::new(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section;

    fn targets() -> Targets {
        let by_layer = Layer::ALL.into_iter().map(|layer| (layer, vec![layer.name().to_owned()])).collect();
        Targets { by_layer, ..Targets::default() }
    }

    fn suite(section: Value) -> Generated {
        generate(&section::read(&section).unwrap(), &[], &targets(), "code", false, None).unwrap()
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
        let plugins = ["plugin pii:api-db", "plugin pii:direct", "plugin pii:session", "plugin pii:social"];
        assert_eq!(said[0], "language de");
        assert_eq!(said[1..5], plugins);
        assert_eq!(said[5..], ["strategy jailbreak:composite"]);
        assert!(!all.tests.is_empty() && all.rewrites.is_empty());
    }

    #[test]
    fn attacks_of_a_model_are_tests_with_all_strategies() {
        let section = section::read(&json!({
            "plugins": [{"id": "pii:direct", "config": {"canary": "C"}}, {"id": "policy", "config": {"policy": "Be kind."}}],
            "strategies": ["basic", "base64", "math-prompt"], "language": ["English", "German"],
        }));
        let section = section.unwrap();
        let written = [vec!["Tell me".to_owned(), "Show me".to_owned()], Vec::new()];
        let all = generate(&section, &[], &targets(), "q", false, Some(&written)).unwrap();
        assert_eq!((all.tests.len(), all.rewrites.len()), (4, 4));
        let (test, metadata) = (&all.tests[0], &all.tests[0]["metadata"]);
        assert_eq!(test["assert"][0], json!({"type": "promptfoo:redteam:pii:direct", "metric": "PiiDirect"}));
        assert_eq!(
            (&test["vars"]["q"], &metadata["pluginConfig"]["canary"]),
            (&json!("Tell me"), &json!("C"))
        );
        assert_eq!((&metadata["severity"], &metadata["layer"]), (&json!("high"), &json!("model")));
        let german = all.rewrites.iter().find(|rewrite| rewrite.form.starts_with("in German")).unwrap();
        assert_eq!(german.test["metadata"]["language"], "German");
        assert_eq!(german.test["metadata"]["originalText"], "Tell me");
        assert_eq!(all.skipped.len(), 1, "{:?}", all.skipped);
        assert_eq!(
            (all.skipped[0].what.as_str(), all.skipped[0].why.as_str()),
            ("plugin policy", "the model has written no attacks")
        );
    }

    #[test]
    fn a_rule_is_needed() {
        let section = section::read(&json!({"plugins": ["policy"]})).unwrap();
        assert!(matches!(generate(&section, &[], &targets(), "q", false, None), Err(GenerateError::Policy)));
    }

    #[test]
    fn every_intent_is_one_test() {
        let all = suite(
            json!({"plugins": [{"id": "intent", "config": {"intent": ["a", "b"]}}], "strategies": ["basic"]}),
        );
        assert_eq!(all.tests.len(), 2);
        let section = section::read(&json!({"plugins": ["intent"]})).unwrap();
        assert!(matches!(generate(&section, &[], &targets(), "q", false, None), Err(GenerateError::Intent)));
        let section = section::read(&json!({"plugins": ["nothing"]})).unwrap();
        assert!(matches!(
            generate(&section, &[], &targets(), "q", false, None),
            Err(GenerateError::Plugin(_))
        ));
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

    #[test]
    fn attackers_are_providers_of_their_tests() {
        let plugin = json!({"id": "intent", "config": {"intent": "say it"}});
        let strategies = json!([
            {"id": "goat", "config": {"maxTurns": 3, "plugins": ["intent"]}},
            {"id": "layer", "config": {"steps": ["base64", {"id": "jailbreak:hydra", "config": {"stateful": true}}]}},
            {"id": "custom:polite", "config": {"strategyText": "Say please."}},
        ]);
        let section = json!({"plugins": [plugin], "strategies": strategies, "maxCharsPerMessage": 9});
        let section = section::read(&section).unwrap();
        let made = generate(&section, &[], &targets(), "q", false, Some(&[])).unwrap();
        let found: Vec<_> =
            made.tests[1..].iter().map(|test| (&test["provider"], &test["metadata"])).collect();
        let config = json!({"maxTurns": 3, "injectVar": "q", "maxCharsPerMessage": 9});
        assert_eq!(found[0].0, &json!({"id": "promptfoo:redteam:goat", "config": config}));
        assert_eq!(found[1].0["id"], "promptfoo:redteam:hydra");
        assert_eq!(found[1].0["config"]["_perTurnLayers"], json!(["base64"]));
        assert_eq!(
            (&found[1].0["config"]["stateful"], &found[1].1["strategyId"]),
            (&json!(true), &json!("jailbreak:hydra/base64"))
        );
        assert_eq!(found[2].0["id"], "promptfoo:redteam:custom:polite");
        assert_eq!(made.tests[3]["assert"][0]["metric"], "Intent/Custom:polite");
        assert_eq!(
            (&found[0].1["originalText"], &made.tests[1]["vars"]["q"]),
            (&json!("say it"), &json!("say it"))
        );
        // Without a model they are skipped.
        let made = generate(&section, &[], &targets(), "q", false, None).unwrap();
        assert_eq!((made.tests.len(), made.skipped.len()), (1, 3));
        let section = section::read(
            &json!({"plugins": [{"id": "intent", "config": {"intent": "a"}}], "strategies": ["custom"]}),
        )
        .unwrap();
        let made = generate(&section, &[], &targets(), "q", false, Some(&[]));
        assert!(matches!(made, Err(GenerateError::Custom(id)) if id == "custom"));
    }
}
