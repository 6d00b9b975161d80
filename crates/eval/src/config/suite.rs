//! A whole configuration, ready to run.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::diagnostic::{ConfigError, Findings, Severity};
use super::document::{self, Document};
use super::merged::Merged;
use super::node::Node;
use super::prompts::{self, Prompt};
use super::schema::wrong_shape;
use super::{env, scenarios, standalone, tests};
use crate::code::Fallback;
use crate::model::Object;
use crate::provider::spec::{self, ProviderSpec};
use crate::run::hooks;
use crate::services::Services;
use crate::template::Templates;

/// What the command line says about a configuration.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadOptions {
    /// `-c`: files, directories, globs.
    pub configs: Vec<String>,
    /// The directory the command was given in.
    pub directory: PathBuf,
    /// `-p`: prompts instead of the configuration's.
    pub prompts: Vec<String>,
    /// `-r`: providers instead of the configuration's.
    pub providers: Vec<String>,
    /// `-t`: tests instead of the configuration's.
    pub tests: Option<String>,
    /// `-a`: assertions for the outputs in `model_outputs`.
    pub assertions: Option<String>,
    /// `--model-outputs`: outputs given beforehand, which `assertions` are about.
    pub model_outputs: Option<String>,
    /// `--env-file`, in order.
    pub env_files: Vec<PathBuf>,
    /// `--var`: variables for every test.
    pub vars: Vec<(String, String)>,
    /// `--tag`.
    pub tags: Vec<(String, String)>,
    /// `--description`.
    pub description: Option<String>,
    /// Errors are only warnings.
    pub lenient: bool,
    /// `-x`: hooks that go before the configuration's.
    pub extensions: Vec<String>,
    /// `-j`, for the workers.
    pub concurrency: Option<usize>,
    /// Warnings are errors.
    pub strict: bool,
    /// The server that sandboxes are from when variables name none. It holds a key, so that it is not stored.
    #[serde(skip)]
    pub server: Option<Fallback>,
}

/// A derived metric: its name and the expression over the other metrics.
#[derive(Debug, Clone)]
pub struct DerivedMetric {
    /// Its name.
    pub name: String,
    /// Its expression.
    pub value: String,
}

/// A configuration that was read, checked and merged.
pub struct Suite {
    /// What it is about.
    pub description: Option<String>,
    /// All prompts.
    pub prompts: Vec<Prompt>,
    /// All providers.
    pub providers: Vec<ProviderSpec>,
    /// All tests; neither are defaults merged in yet nor variables expanded.
    pub tests: Vec<Object>,
    /// Metrics computed from others.
    pub derived_metrics: Vec<DerivedMetric>,
    /// `outputPath`.
    pub outputs: Vec<String>,
    /// `commandLineOptions` over `evaluateOptions`.
    pub options: Object,
    /// The configuration as result files show it.
    pub raw: Object,
    /// The hooks: `extensions`.
    pub extensions: Vec<String>,
    /// The test that is to be merged into all others.
    pub default_test: Object,
    /// What rows share.
    pub services: Services,
    /// Renders templates with the configuration's environment.
    pub templates: Templates,
}

/// Reads, checks and merges the configuration. What was found is in `findings`, also when it succeeds.
///
/// # Errors
/// When files cannot be read or the configuration is wrong.
pub async fn load(options: &LoadOptions, findings: &mut Findings) -> Result<Suite, ConfigError> {
    let documents = documents(options, findings)?;
    let base = documents.first().map_or_else(|| options.directory.clone(), |document| document.base.clone());
    let dotenv = env::read(&options.directory, &options.env_files, findings);
    let mut config_env = dotenv;
    for document in &documents {
        if let Some(map) = document.root.get("env") {
            if !map.is_map() {
                wrong_shape(map, "`env`", "a map", findings);
            }
            let values = map.to_value();
            for (key, value) in values.as_object().into_iter().flatten() {
                config_env.insert(key.clone(), json!(crate::template::value::to_text(value)));
            }
        }
    }
    let templates = Templates::new(env::for_templates(&config_env));
    let mut merged = Merged::of(documents, &templates, findings);
    let templates = templates.with_filters(merged.filters(&base, findings));
    let concurrency = options.concurrency.or_else(|| merged.concurrency()).unwrap_or(4);
    let services = Services::new(base.clone(), config_env, concurrency);
    let services = match &options.server {
        Some(server) => services.with_server(server.clone()),
        None => services,
    };

    let default_test = merged.default_test(options, findings);
    let prompts = read_prompts(&merged, options, findings);
    let providers = read_providers(&merged, options, &base, findings);
    let mut all = Vec::new();
    match &options.tests {
        Some(path) => {
            let node = argument_node(path, "--tests");
            all.extend(tests::read(node, &options.directory, &services, findings).await);
        }
        None => {
            for (node, base) in std::mem::take(&mut merged.tests) {
                all.extend(tests::read(node, &base, &services, findings).await);
            }
        }
    }
    for (node, base) in std::mem::take(&mut merged.scenarios) {
        all.extend(scenarios::read(node, &base, &services, findings).await);
    }
    if all.is_empty() {
        all.push(Object::new());
    }
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
    merged.name(options);
    let description = merged.description();
    let run_options = merged.run_options();
    Ok(Suite {
        description,
        prompts,
        providers,
        tests: all,
        derived_metrics: merged.derived_metrics,
        outputs: merged.outputs,
        options: run_options,
        raw: merged.raw,
        extensions,
        default_test,
        services,
        templates,
    })
}

fn documents(options: &LoadOptions, findings: &mut Findings) -> Result<Vec<Document>, ConfigError> {
    let given = standalone::read(options, findings)?;
    let paths = if !options.configs.is_empty() {
        document::named(&options.configs, findings)
    } else if given.is_some() {
        Vec::new()
    } else {
        document::find(&options.directory).into_iter().collect()
    };
    let complete = given.is_some() || !options.prompts.is_empty() && !options.providers.is_empty();
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
        let extension = super::files::extension(&path.to_string_lossy());
        if super::files::is_javascript(&extension) {
            let message =
                format!("`{}` is a program; only YAML and JSON configurations can be read", path.display());
            findings.add(Severity::Error, None, message);
            return Err(ConfigError::Invalid);
        }
        let mut root = document::read(&path, findings)?;
        let base = path.parent().map(Path::to_owned).unwrap_or_default();
        let base = if base.as_os_str().is_empty() { PathBuf::from(".") } else { base };
        let base = base.canonicalize().unwrap_or(base);
        if std::env::var_os("PROMPTFOO_DISABLE_REF_PARSER").is_none() {
            document::resolve(&mut root, &base, findings);
        }
        if given.is_some() {
            standalone::KEYS.iter().for_each(|key| drop(root.take(key)));
        }
        documents.push(Document { path, base, root });
    }
    documents.extend(given);
    Ok(documents)
}

/// The hooks, those of the command line first.
fn extensions(merged: &Merged, options: &LoadOptions, base: &Path, findings: &mut Findings) -> Vec<String> {
    let mut all = options.extensions.clone();
    for reference in &all {
        if let Err(problem) = hooks::check(reference, base) {
            findings.add(Severity::Error, None, problem);
        }
    }
    for (node, _) in merged.extensions.iter().filter(|(node, _)| !node.is_null()) {
        let Some(items) = node.items() else {
            wrong_shape(node, "`extensions`", "a list of `file://` paths", findings);
            continue;
        };
        for item in items {
            match item.text().map(|reference| (reference, hooks::check(reference, base))) {
                Some((reference, Ok(()))) => all.push(reference.to_owned()),
                Some((_, Err(problem))) => findings.add(Severity::Error, Some(&item.at), problem),
                None => wrong_shape(item, "a hook", "a `file://` path", findings),
            }
        }
    }
    all
}

fn argument_node(text: &str, option: &str) -> Node {
    let at = super::diagnostic::Position { file: Path::new(option).into(), line: 1, column: 1 };
    Node::of(json!(text), at)
}

fn read_prompts(merged: &Merged, options: &LoadOptions, findings: &mut Findings) -> Vec<Prompt> {
    if !options.prompts.is_empty() {
        let read =
            |path: &String| prompts::read(&argument_node(path, "--prompts"), &options.directory, findings);
        return options.prompts.iter().flat_map(read).collect();
    }
    let mut all: Vec<Prompt> =
        merged.prompts.iter().flat_map(|(node, base)| prompts::read(node, base, findings)).collect();
    if all.is_empty() && merged.prompts.is_empty() {
        let text = "{{prompt}}".to_owned();
        all.push(Prompt { raw: text.clone(), label: text, ..Prompt::default() });
    }
    all
}

fn read_providers(
    merged: &Merged,
    options: &LoadOptions,
    base: &Path,
    findings: &mut Findings,
) -> Vec<ProviderSpec> {
    let mut all = Vec::new();
    if options.providers.is_empty() {
        for (node, base) in &merged.providers {
            all.extend(spec::read(node, base, findings));
        }
        if merged.providers.is_empty() && !findings.failed() {
            let hint = "add `providers: [openai:gpt-4o]`, or `providers: [echo]` to try things out";
            findings.hint(Severity::Error, None, "the configuration names no providers", hint);
        }
    } else {
        for id in &options.providers {
            all.extend(spec::read(&argument_node(id, "--providers"), base, findings));
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
