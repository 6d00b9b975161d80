//! A whole configuration, ready to run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::hooks::Hook;
use super::merged::Merged;
use super::options::LoadOptions;
use super::prompts::{self, Prompt};
use super::{dataset, program, providers, scenarios, standalone, test_cases, tracing};
use crate::calling::spec::ProviderSpec;
use crate::model::Object;
use crate::reading::diagnostic::{Findings, Position, Severity};
use crate::reading::document::{self, ConfigFile};
use crate::reading::node::{Kind, Node};
use crate::reading::schema::wrong_shape;
use crate::reading::{Env, ReadError, env, files};
use crate::sandboxes::Sandboxes;
use crate::script::Workers;
use crate::template::Templates;
use crate::template::value::to_text;
use crate::traces;

/// Reason why a suite was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file could not be read.
    #[error(transparent)]
    Read(ReadError),
    /// Findings were reported, and some of them are errors.
    #[error("the configuration has errors")]
    Invalid,
}

impl From<ReadError> for ConfigError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Invalid => Self::Invalid,
            unreadable @ ReadError::Unreadable { .. } => Self::Read(unreadable),
        }
    }
}

/// A metric that is computed from others.
#[derive(Debug, Clone)]
pub struct DerivedMetric {
    /// The name.
    pub name: String,
    /// The expression over the other metrics.
    pub value: String,
}

/// A configuration that was read, checked and merged.
pub struct Suite {
    /// The description.
    pub description: Option<String>,
    /// The prompts.
    pub prompts: Vec<Prompt>,
    /// The providers.
    pub providers: Vec<ProviderSpec>,
    /// The tests, before defaults are merged into them and variables are expanded.
    pub tests: Vec<Object>,
    /// Metrics computed from others.
    pub derived_metrics: Vec<DerivedMetric>,
    /// Value of `outputPath`.
    pub outputs: Vec<String>,
    /// `commandLineOptions` over `evaluateOptions`.
    pub options: Object,
    /// The configuration as result files show it.
    pub raw: Object,
    /// The hooks: `extensions`.
    pub extensions: Vec<String>,
    /// The test that is merged into all others.
    pub default_test: Object,
    /// The processes for user code, with the directory and the variables of the suite.
    pub workers: Arc<Workers>,
    /// The sandboxes for code of models.
    pub sandboxes: Arc<Sandboxes>,
    /// The renderer of templates, with the environment of the configuration.
    pub templates: Templates,
    /// How rows are traced.
    pub tracing: traces::TraceSettings,
}

impl Suite {
    /// Sets options of the default test: a prefix and a suffix replace those of the configuration, a grading provider does not.
    pub fn override_defaults(&mut self, prefix: Option<&str>, suffix: Option<&str>, grader: Option<&str>) {
        for (key, text) in [("prefix", prefix), ("suffix", suffix), ("provider", grader)] {
            let Some(text) = text else { continue };
            let options = self.default_test.entry("options").or_insert_with(|| json!({}));
            if let Value::Object(options) = options
                && (key != "provider" || !options.contains_key(key))
            {
                options.insert(key.to_owned(), json!(text));
            }
        }
    }
}

/// Reads, checks and merges a configuration. Diagnostics are added to `findings`, also when loading succeeds.
///
/// # Errors
/// When files cannot be read or the configuration is wrong.
// In a box, so that its code is compiled with this crate: that of an async function is compiled with the crate that awaits it.
#[inline(never)]
pub fn load<'a>(
    options: &'a LoadOptions,
    findings: &'a mut Findings,
) -> BoxFuture<'a, Result<Suite, ConfigError>> {
    Box::pin(read(options, findings))
}

async fn read(options: &LoadOptions, findings: &mut Findings) -> Result<Suite, ConfigError> {
    let dotenv = env::read(&options.directory, &options.env_files, findings);
    let documents = documents(options, &dotenv, findings).await?;
    let base = documents.first().map_or_else(|| options.directory.clone(), |document| document.base.clone());
    // Then even the variables of the environment stay as they are written. The variables of the configuration are known too late.
    let untouched = Env::new(dotenv.clone()).is_on("PROMPTFOO_DISABLE_TEMPLATING");
    let mut config_env = dotenv;
    for document in &documents {
        if let Some(map) = document.root.get("env") {
            if !map.is_map() {
                wrong_shape(map, "`env`", "a map", findings);
            }
            let values = map.to_value();
            for (key, value) in values.as_object().into_iter().flatten() {
                config_env.insert(key.clone(), json!(to_text(value)));
            }
        }
    }
    let templates = Templates::new(env::for_templates(&config_env)).with_base(&base);
    let config_env = Env::new(config_env);
    let load_templates = (!untouched).then_some(&templates);
    let mut merged = Merged::of(documents, load_templates, findings);
    let templates = templates.with_filters(merged.filters(&base, findings));
    let concurrency = options.concurrency.or_else(|| merged.concurrency()).unwrap_or(4);
    let workers = Workers::new(base.clone(), config_env.clone(), concurrency);
    let sandboxes = Sandboxes::new(config_env, concurrency);
    let sandboxes = match &options.server {
        Some(server) => sandboxes.with_server(server.clone()),
        None => sandboxes,
    };

    let default_test = merged.default_test(options, &base, findings);
    let prompts = read_prompts(&merged, options, findings);
    let providers = read_providers(&merged, options, &base, findings);
    let tests = read_tests(&mut merged, options, &workers, findings).await;
    merged.check_attacks(&tests, findings);
    let extensions = extensions(&merged, options, &base, findings);
    if options.lenient {
        findings.lenient();
    }
    if options.strict {
        findings.strict();
    }
    if findings.failed() {
        return Err(ConfigError::Invalid);
    }
    merged.show(options, &default_test);
    let description = merged.description();
    let run_options = merged.run_options();
    let tracing = tracing::settings(&merged.raw);
    Ok(Suite {
        description,
        prompts,
        providers,
        tests,
        derived_metrics: merged.derived_metrics,
        outputs: merged.outputs,
        options: run_options,
        raw: merged.raw,
        extensions,
        default_test,
        workers: Arc::new(workers),
        sandboxes: Arc::new(sandboxes),
        templates,
        tracing,
    })
}

async fn read_tests(
    merged: &mut Merged,
    options: &LoadOptions,
    workers: &Workers,
    findings: &mut Findings,
) -> Vec<Object> {
    let mut all = Vec::new();
    if let Some(path) = &options.dataset {
        for node in dataset::read(path, &options.directory, findings) {
            let at = node.at.clone();
            let list = Node { kind: Kind::List(vec![node]), at };
            all.extend(test_cases::read(list, &options.directory, workers, findings).await);
        }
        return all;
    }
    match &options.tests {
        Some(path) => {
            let node = argument_node(path, "--tests");
            all.extend(test_cases::read(node, &options.directory, workers, findings).await);
        }
        None => {
            for (node, base) in std::mem::take(&mut merged.tests) {
                all.extend(test_cases::read(node, &base, workers, findings).await);
            }
        }
    }
    for (node, base) in std::mem::take(&mut merged.scenarios) {
        all.extend(scenarios::read(node, &base, workers, findings).await);
    }
    if all.is_empty() {
        all.push(Object::new());
    }
    all
}

async fn documents(
    options: &LoadOptions,
    env: &Object,
    findings: &mut Findings,
) -> Result<Vec<ConfigFile>, ConfigError> {
    let given = standalone::read(options, findings)?;
    let paths = if !options.configs.is_empty() {
        document::named(&options.configs, findings)
    } else if given.is_some() {
        Vec::new()
    } else {
        document::find(&options.directory).into_iter().collect()
    };
    let has_prompts = !options.prompts.is_empty() || options.dataset.is_some();
    let complete = given.is_some() || has_prompts && !options.providers.is_empty();
    if paths.is_empty() && !findings.failed() && !complete {
        let message = "there is no promptfooconfig.yaml here";
        findings.hint(
            Severity::Error,
            None,
            message,
            "name one with -c, or make one with `sandcove eval init`",
        );
    }
    if findings.failed() {
        return Err(ConfigError::Invalid);
    }
    let mut documents = Vec::new();
    for path in paths {
        let base = path.parent().map(Path::to_owned).unwrap_or_default();
        let base = if base.as_os_str().is_empty() { PathBuf::from(".") } else { base };
        let base = base.canonicalize().unwrap_or(base);
        let is_program = files::is_javascript(&files::extension(&path.to_string_lossy()));
        let mut root = match is_program {
            true => program::read(&path, &base, env, findings).await?,
            false => document::read(&path, findings)?,
        };
        if std::env::var_os("PROMPTFOO_DISABLE_REF_PARSER").is_none() {
            document::resolve(&mut root, &base, findings);
        }
        if given.is_some() {
            standalone::KEYS.iter().for_each(|key| drop(root.take(key)));
        }
        documents.push(ConfigFile { path, base, root });
    }
    documents.extend(given);
    Ok(documents)
}

/// The hooks, those of the command line first.
fn extensions(merged: &Merged, options: &LoadOptions, base: &Path, findings: &mut Findings) -> Vec<String> {
    let mut all = options.extensions.clone();
    for reference in &all {
        if let Err(problem) = Hook::parse(reference, base) {
            findings.add(Severity::Error, None, problem.to_string());
        }
    }
    for (node, _) in merged.extensions.iter().filter(|(node, _)| !node.is_null()) {
        let Some(items) = node.items() else {
            wrong_shape(node, "`extensions`", "a list of `file://` paths", findings);
            continue;
        };
        for item in items {
            match item.text().map(|reference| (reference, Hook::parse(reference, base))) {
                Some((reference, Ok(_))) => all.push(reference.to_owned()),
                Some((_, Err(problem))) => {
                    findings.add(Severity::Error, Some(&item.at), problem.to_string());
                }
                None => wrong_shape(item, "a hook", "a `file://` path", findings),
            }
        }
    }
    all
}

fn argument_node(text: &str, option: &str) -> Node {
    let at = Position { file: Path::new(option).into(), line: 1, column: 1 };
    Node::of(json!(text), at)
}

fn read_prompts(merged: &Merged, options: &LoadOptions, findings: &mut Findings) -> Vec<Prompt> {
    if !options.prompts.is_empty() {
        let read =
            |path: &String| prompts::read(&argument_node(path, "--prompts"), &options.directory, findings);
        return options.prompts.iter().flat_map(read).collect();
    }
    let mut all: Vec<Prompt> = Vec::new();
    for (at, (node, base)) in merged.prompts.iter().enumerate() {
        let earlier = all.len();
        let read = prompts::read(node, base, findings);
        // Several configurations may share a prompt.
        let is_new = |prompt: &Prompt| at == 0 || !all[..earlier].contains(prompt);
        let new: Vec<Prompt> = read.into_iter().filter(is_new).collect();
        all.extend(new);
    }
    if all.is_empty() && !merged.prompts.is_empty() && !findings.failed() {
        let at = merged.prompts.first().map(|(node, _)| &node.at);
        let hint = "leave `prompts` out for the prompt `{{prompt}}`";
        findings.hint(Severity::Error, at, "the configuration has no prompts", hint);
    }
    if all.is_empty() && merged.prompts.is_empty() {
        let text = if options.dataset.is_some() { dataset::PROMPT } else { "{{prompt}}" }.to_owned();
        all.push(Prompt { raw: text.clone(), label: text, ..Prompt::default() });
    }
    all
}

/// The providers of the configurations.
fn configured(merged: &Merged, findings: &mut Findings) -> Vec<ProviderSpec> {
    merged.providers.iter().flat_map(|(node, base)| providers::read(node, base, findings)).collect()
}

fn read_providers(
    merged: &Merged,
    options: &LoadOptions,
    base: &Path,
    findings: &mut Findings,
) -> Vec<ProviderSpec> {
    let mut all = Vec::new();
    if options.providers.is_empty() {
        all = configured(merged, findings);
        if all.is_empty() && !findings.failed() {
            let hint = "add `providers: [openai:gpt-4o]`, or `providers: [echo]` to try things out";
            findings.hint(Severity::Error, None, "the configuration names no providers", hint);
        }
    } else {
        // A provider of the configuration keeps its settings when the command line names it. The others are not called, so that what is
        // wrong with them is no matter.
        let known = configured(merged, &mut Findings::default());
        for name in &options.providers {
            let of_type = format!(":{name}");
            let found = [
                known.iter().find(|spec| spec.id == *name),
                known.iter().find(|spec| spec.label.as_ref() == Some(name)),
                known.iter().find(|spec| spec.id.ends_with(&of_type)),
            ];
            match found.into_iter().flatten().next() {
                Some(spec) => all.push(spec.clone()),
                None => all.extend(providers::read(&argument_node(name, "--providers"), base, findings)),
            }
        }
    }
    let mut unique: Vec<ProviderSpec> = Vec::new();
    for provider in all {
        if !unique.iter().any(|known| known.raw == provider.raw && merged.providers.len() > 1) {
            unique.push(provider);
        }
    }
    unique
}
