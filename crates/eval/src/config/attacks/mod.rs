//! The suite of a red team: the attacks that the `redteam` section of a configuration asks for, on the targets that it names.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;
use sandcove_redteam::category::Severity;
use sandcove_redteam::generate::{self, GenerateError, Retry, Skipped, Targets};
use sandcove_redteam::probe::{self, Layer};
use sandcove_redteam::section::{self, Context, Named, Section, SectionError};
use sandcove_redteam::wish::Rewrite;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use self::targets::targets;
use super::{attack_files, prompts};
use crate::model::Object;
use crate::reading::diagnostic::{Findings, Severity as Level};
use crate::reading::env;
use crate::reading::{ReadError, document, files};

mod targets;

/// The name of a configuration beside another one that has no `redteam` section.
pub const BESIDE: &str = "promptfooconfig.redteam.yaml";

/// Settings of the command line in place of the section.
#[derive(Debug, Clone, Default)]
pub struct AttackOptions {
    /// The configuration; the one of the directory if none is named.
    pub config: Option<PathBuf>,
    /// The directory that the command was given in.
    pub directory: PathBuf,
    /// Purpose of the target.
    pub purpose: Option<String>,
    /// The variable that carries the attack.
    pub inject_var: Option<String>,
    /// Ids of plugins.
    pub plugins: Vec<String>,
    /// Ids of strategies.
    pub strategies: Vec<String>,
    /// How many probes of each category.
    pub tests: Option<usize>,
    /// Languages of texts.
    pub languages: Vec<String>,
    /// Names of layers.
    pub layers: Vec<Layer>,
    /// The seed of choices.
    pub seed: Option<u64>,
    /// Whether probes that may harm the host are made.
    pub destructive: bool,
    /// The model that writes attacks.
    pub provider: Option<String>,
    /// Files of environment variables, for that model.
    pub env_files: Vec<PathBuf>,
}

/// The `redteam` section of a configuration with the targets that it attacks.
#[derive(Debug, Clone)]
pub struct AttackPlan {
    /// The section.
    pub section: Section,
    /// The directory of the configuration, which its paths are relative to.
    pub base: PathBuf,
    /// Variables of `.env` files and of the configuration.
    pub variables: Object,
    config: Map<String, Value>,
    given: Value,
    own: Vec<probe::Probe>,
    targets: Targets,
    specs: Vec<Value>,
    inject_var: String,
    has_prompts: bool,
    destructive: bool,
    hash: String,
}

/// A suite of attacks.
#[derive(Debug)]
pub struct Attacks {
    /// The configuration with the attacks as its tests.
    pub document: Value,
    /// The digest of everything that it depends on.
    pub hash: String,
    /// The directory of the configuration, which its paths are relative to.
    pub base: PathBuf,
    /// Things that are not attacked.
    pub skipped: Vec<Skipped>,
    /// Attacks that a model is to write in another form.
    pub rewrites: Vec<Rewrite>,
    /// Strategies that are programs of the user's, to be called with the attacks.
    pub programs: Vec<Named>,
    /// Whether attacks of earlier runs are to be repeated. [`repeat`](super::repeated::repeat) adds them.
    pub retry: Option<Retry>,
}

/// Reason why a suite of attacks was not made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum AttackError {
    /// The directory has no configuration.
    #[error(
        "there is no promptfooconfig.yaml here\nhint: name one with -c, or make one with `sandcove redteam init`"
    )]
    NoConfig,
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The configuration is a program.
    #[error("`{}` is a program; write the red team's configuration in YAML or JSON", .0.display())]
    Program(PathBuf),
    /// The section is malformed.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// A file of probes cannot be read.
    #[error("failed to read the probes in `{path}`: {reason}")]
    Probes { path: String, reason: String },
    /// A plugin that is a file cannot be read.
    #[error("plugin `{id}`: {reason}")]
    Plugin { id: String, reason: String },
    /// A strategy that is a program cannot be read.
    #[error("strategy `{id}`: failed to read the file: {error}")]
    Strategy { id: String, error: std::io::Error },
    /// A target is unknown.
    #[error("target `{0}`: {1}")]
    Target(String, String),
    /// The section names something that does not exist.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// Nothing is left to attack.
    #[error("nothing to attack: the plugins and targets leave no tests")]
    Nothing,
}

/// Returns the configuration that a directory has for red teams.
pub fn configuration(directory: &Path) -> Option<PathBuf> {
    let beside = directory.join(BESIDE);
    let usual = document::find(directory);
    // The usual name goes first, unless its configuration attacks nothing.
    let attacks = usual.as_ref().is_some_and(|path| {
        document::read(path, &mut Findings::default())
            .is_ok_and(|root| root.get("redteam").is_some_and(|node| !node.is_null()))
    });
    if !attacks && beside.is_file() { Some(beside) } else { usual }
}

/// Reads the section and its targets.
///
/// # Errors
/// An error if the configuration is wrong.
pub fn read(options: &AttackOptions, findings: &mut Findings) -> Result<AttackPlan, AttackError> {
    let path =
        options.config.clone().or_else(|| configuration(&options.directory)).ok_or(AttackError::NoConfig)?;
    if files::is_javascript(&files::extension(&path.to_string_lossy())) {
        return Err(AttackError::Program(path));
    }
    let base = path
        .parent()
        .map(Path::to_owned)
        .filter(|base| !base.as_os_str().is_empty())
        .unwrap_or_else(|| ".".into());
    let mut root = document::read(&path, findings)?;
    document::resolve(&mut root, &base, findings);
    let prompts = root.get("prompts").map(|node| prompts::read(node, &base, findings)).unwrap_or_default();
    let Value::Object(mut config) = root.to_value() else {
        return Err(AttackError::Section(SectionError { key: "", expected: "in a map" }));
    };
    // Both stand beside the section in older configurations.
    let mut given = config.get("redteam").cloned().unwrap_or_else(|| json!({}));
    for key in ["plugins", "strategies"] {
        if let (Some(value), Some(section)) = (config.shift_remove(key), given.as_object_mut()) {
            section.entry(key).or_insert(value);
        }
    }
    if let (Some(id), Some(section)) = (&options.provider, given.as_object_mut()) {
        section.insert("provider".to_owned(), json!(id));
    }
    let mut section = section::read(&given)?;
    for key in &section.unknown {
        findings.add(Level::Warning, None, format!("unknown key `{key}` in `redteam`; it has no effect"));
    }
    overrule(&mut section, options);
    for plugin in &mut section.plugins {
        if plugin.id.starts_with("file://") {
            plugin.config.extend(attack_files::plugin(&plugin.id, &base, findings)?);
        }
        attack_files::read_intents(plugin, &base)?;
    }
    let own = attack_files::probes(&section, &base)?;
    let programs = attack_files::programs(&section, &base)?;
    let has_prompts = !prompts.is_empty();
    let inject_var = section.inject_var.clone().unwrap_or_else(|| {
        let texts: Vec<&str> = prompts.iter().map(|prompt| prompt.raw.as_str()).collect();
        last_variable(&texts)
            .unwrap_or_else(|| if has_prompts { "query".to_owned() } else { "code".to_owned() })
    });
    let named = config.shift_remove("targets").or_else(|| config.shift_remove("providers"));
    let (targets, specs) = targets(named, &section, &base)?;
    let labels: Vec<String> = prompts.iter().map(|prompt| prompt.label.clone()).collect();
    let targets = Targets { prompts: labels, ..targets };
    let hash = hash(&given, &config, &specs, options, &format!("{own:?}{:?}{programs:?}", section.plugins));
    let mut variables = env::read(&options.directory, &options.env_files, findings);
    variables.extend(config.get("env").and_then(Value::as_object).cloned().unwrap_or_default());
    Ok(AttackPlan {
        section,
        base,
        variables,
        config,
        given,
        own,
        targets,
        specs,
        inject_var,
        has_prompts,
        destructive: options.destructive,
        hash,
    })
}

impl AttackPlan {
    /// Whether a model is among the targets.
    pub fn attacks_models(&self) -> bool {
        let layers = &self.section.layers;
        self.targets.by_layer.contains_key(&Layer::Model)
            && (layers.is_empty() || layers.contains(&Layer::Model))
    }

    /// The digest of everything that the suite depends on, but what a model writes.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The variable that carries the attack.
    pub fn inject_var(&self) -> &str {
        &self.inject_var
    }

    /// The plan for one role or state of the target.
    pub(crate) fn within(&self, context: &Context) -> Self {
        let mut plan = self.clone();
        if !context.purpose.is_empty() {
            plan.section.purpose.clone_from(&context.purpose);
        }
        plan
    }

    /// Makes the suite, with what a model has `written` for each wish of the section.
    ///
    /// # Errors
    /// An error if the section names something that does not exist, or there is nothing to attack.
    pub fn suite(&self, written: Option<&[Vec<String>]>) -> Result<Attacks, AttackError> {
        let Self { section, own, targets, inject_var, .. } = self;
        let made = generate::generate(section, own, targets, inject_var, self.destructive, written)?;
        if made.tests.is_empty() && made.rewrites.is_empty() {
            return Err(AttackError::Nothing);
        }
        let (mut config, mut given) = (self.config.clone(), self.given.clone());
        if !self.has_prompts {
            config.insert("prompts".to_owned(), json!([format!("{{{{{inject_var}}}}}")]));
        }
        config.insert("targets".to_owned(), json!(self.specs));
        let mut default = config.shift_remove("defaultTest").unwrap_or_else(|| json!({}));
        if let Value::Object(default) = &mut default {
            let metadata = default.entry("metadata").or_insert_with(|| json!({}));
            metadata["purpose"] = json!(section.purpose);
            metadata["entities"] = given.get("entities").cloned().unwrap_or_else(|| json!([]));
        }
        config.insert("defaultTest".to_owned(), default);
        config.insert("tests".to_owned(), Value::Array(made.tests));
        if let Some(section) = given.as_object_mut() {
            section.insert("injectVar".to_owned(), json!(inject_var));
        }
        config.insert("redteam".to_owned(), given);
        let metadata = config.entry("metadata").or_insert_with(|| json!({}));
        metadata["configHash"] = json!(self.hash);
        let mut attacks = Attacks {
            document: Value::Object(config),
            hash: self.hash.clone(),
            base: self.base.clone(),
            skipped: made.skipped,
            rewrites: made.rewrites,
            programs: made.programs,
            retry: made.retry,
        };
        attacks.note();
        Ok(attacks)
    }
}

impl Attacks {
    /// Adds tests and things that are not attacked.
    pub(crate) fn add(&mut self, tests: Vec<Value>, skipped: Vec<Skipped>) {
        if let Some(all) = self.document["tests"].as_array_mut() {
            all.extend(tests);
        }
        self.skipped.extend(skipped);
        self.note();
    }

    /// Gives the attacks on models the variables of a context, in which they are made.
    pub(crate) fn set_within(&mut self, context: &Context) {
        let purpose = self.document["defaultTest"]["metadata"]["purpose"].clone();
        for test in
            self.document["tests"].as_array_mut().into_iter().flatten().filter(|test| is_on_model(test))
        {
            for (name, value) in &context.vars {
                test["vars"][name] = value.clone();
            }
            test["metadata"]["purpose"] = purpose.clone();
            test["metadata"]["contextId"] = json!(context.id);
            test["metadata"]["contextVars"] = json!(context.vars);
        }
    }

    /// Adds the attacks on models of the same suite in another context. Sandboxes and checks know no contexts.
    pub(crate) fn add_those_on_models(&mut self, other: Self) {
        let tests = other.document["tests"].as_array().into_iter().flatten();
        self.add(tests.filter(|test| is_on_model(test)).cloned().collect(), other.skipped);
        self.skipped.sort();
        self.skipped.dedup();
        self.note();
    }

    /// Notes in the section how many attacks there are, and what is not attacked.
    pub(crate) fn note(&mut self) {
        let count = self.document["tests"].as_array().map_or(0, Vec::len);
        self.document["redteam"]["numProbes"] = json!(count);
        let skipped = self.skipped.iter().map(|skip| json!({"what": skip.what, "why": skip.why}));
        self.document["redteam"]["skipped"] = skipped.collect();
    }
}

fn is_on_model(test: &Value) -> bool {
    test["metadata"]["layer"] == Layer::Model.name()
}

fn overrule(section: &mut Section, options: &AttackOptions) {
    let named = |ids: &[String]| ids.iter().map(|id| Named { id: id.clone(), ..Named::default() }).collect();
    if !options.plugins.is_empty() {
        section.plugins = named(&options.plugins);
    }
    if !options.strategies.is_empty() {
        section.strategies = named(&options.strategies);
    }
    if !options.layers.is_empty() {
        section.layers.clone_from(&options.layers);
    }
    if !options.languages.is_empty() {
        section.languages = section::foreign(&options.languages);
    }
    if let Some(purpose) = &options.purpose {
        section.purpose.clone_from(purpose);
    }
    section.inject_var = options.inject_var.clone().or_else(|| section.inject_var.clone());
    section.tests = options.tests.or(section.tests);
    section.seed = options.seed.unwrap_or(section.seed);
}

static VARIABLE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\{\{-?\s*([A-Za-z_]\w*)").ok());

/// The variable that stands last in the prompts.
fn last_variable(prompts: &[&str]) -> Option<String> {
    let pattern = VARIABLE.as_ref()?;
    let names = prompts.iter().flat_map(|text| pattern.captures_iter(text)).map(|found| found[1].to_owned());
    names.filter(|name| name != "env").last()
}

/// The digest of everything that the suite depends on.
fn hash(
    section: &Value,
    config: &Map<String, Value>,
    specs: &[Value],
    options: &AttackOptions,
    files: &str,
) -> String {
    let asked =
        AttackOptions { config: None, directory: PathBuf::new(), env_files: Vec::new(), ..options.clone() };
    let probes = format!("{asked:?}{files}{:?}", probe::builtin());
    let all = json!([env!("CARGO_PKG_VERSION"), section, config, specs, probes]).to_string();
    Sha256::digest(all.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the severity from which a breach fails a run: that of the section, else high.
pub fn fail_on(document: &Value) -> Severity {
    document["redteam"]["failOn"].as_str().and_then(Severity::named).unwrap_or(Severity::High)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(text: &str) -> (tempfile::TempDir, Result<Attacks, AttackError>) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(
            directory.path().join("check.py"),
            "def get_assert(output, context):\n    return True\n",
        )
        .unwrap();
        std::fs::write(directory.path().join("promptfooconfig.yaml"), text).unwrap();
        let options = AttackOptions { directory: directory.path().to_owned(), ..AttackOptions::default() };
        let planned = read(&options, &mut Findings::default()).and_then(|plan| plan.suite(None));
        (directory, planned)
    }

    fn layers(document: &Value) -> Vec<&str> {
        let mut layers: Vec<&str> = document["tests"]
            .as_array()
            .unwrap()
            .iter()
            .map(|test| test["metadata"]["layer"].as_str().unwrap())
            .collect();
        layers.sort_unstable();
        layers.dedup();
        layers
    }

    #[test]
    fn a_check_is_attacked_with_the_sandbox_behind_it() {
        let (_directory, made) = planned(
            "targets: [{id: 'file://./check.py', label: check, config: {a: 1}}]\nredteam: {purpose: p}",
        );
        let document = made.unwrap().document;
        assert_eq!(layers(&document), ["gate", "wall"]);
        assert_eq!(document["targets"][1]["id"], "redteam:wall");
        assert_eq!(document["prompts"][0], "{{code}}");
        assert_eq!(document["defaultTest"]["metadata"]["purpose"], "p");
    }

    #[test]
    fn two_targets_never_have_one_label() {
        let (_directory, made) =
            planned("targets: [{id: 'file://./check.py', label: sandbox}, sandbox]\nredteam: {numTests: 1}");
        let document = made.unwrap().document;
        assert_eq!(document["targets"][1]["label"], "sandbox-wall");
        let walls =
            document["tests"].as_array().unwrap().iter().filter(|test| test["metadata"]["layer"] == "wall");
        assert!(
            walls.clone().count() > 0
                && walls.into_iter().all(|test| test["providers"] == json!(["sandbox-wall"]))
        );
    }

    #[test]
    fn a_model_is_attacked_through_the_last_variable() {
        let (_directory, made) = planned("targets: [echo]\nprompts: ['{{a}} and {{ task }}']\nredteam: {}");
        let document = made.unwrap().document;
        assert_eq!(layers(&document), ["model"]);
        assert!(document["tests"][0]["vars"]["task"].is_string());
    }

    #[test]
    fn without_targets_the_sandbox_is_attacked() {
        let (_directory, made) = planned("redteam: {plugins: ['sandbox:time']}");
        assert_eq!(layers(&made.unwrap().document), ["wall"]);
        let (_directory, made) = planned("targets: [echo]\nredteam: {plugins: ['sandbox:time']}");
        assert!(matches!(made, Err(AttackError::Nothing)));
    }

    #[test]
    fn a_plugin_that_is_a_file_needs_both_texts() {
        let text = "targets: [echo]\nprompts: ['{{q}}']\nredteam: {provider: echo, plugins: ['file://own.yaml'], strategies: [basic]}";
        let (directory, made) = planned(text);
        assert!(matches!(made, Err(AttackError::Plugin { .. })));
        let own = directory.path().join("own.yaml");
        let options = AttackOptions { directory: directory.path().to_owned(), ..AttackOptions::default() };
        std::fs::write(&own, "generator: Write {{n}}\n").unwrap();
        let error = read(&options, &mut Findings::default()).unwrap_err().to_string();
        assert!(error.contains("`grader`"), "{error}");
        std::fs::write(&own, "generator: Write {{n}}\ngrader: Is it kind?\n").unwrap();
        let plan = read(&options, &mut Findings::default()).unwrap();
        assert!(plan.attacks_models());
        let suite = plan.suite(Some(&[vec!["{{7*7}}".to_owned()]])).unwrap();
        let test = &suite.document["tests"][0];
        assert_eq!(test["vars"]["q"], "{{'{'}}{7*7}}");
        assert_eq!(test["metadata"]["pluginConfig"]["grader"], "Is it kind?");
        assert_eq!(test["assert"][0]["metric"], "Own");
        assert_eq!(suite.document["redteam"]["numProbes"], 1);
    }

    #[test]
    fn equal_configurations_make_equal_suites() {
        let text = "targets: [sandbox]\nredteam: {seed: 4}";
        let (_first, first) = planned(text);
        let (_second, second) = planned(text);
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!((&first.hash, first.document.to_string()), (&second.hash, second.document.to_string()));
        let (_third, third) = planned("targets: [sandbox]\nredteam: {seed: 5}");
        assert_ne!(third.unwrap().hash, first.hash);
    }
}
