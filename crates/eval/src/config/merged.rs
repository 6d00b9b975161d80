//! All configuration files as one.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::options::LoadOptions;
use super::suite::DerivedMetric;
use super::{test_cases, tracing};
use crate::model::Object;
use crate::reading::diagnostic::{Findings, Position, Severity};
use crate::reading::document::{self, ConfigFile};
use crate::reading::files;
use crate::reading::node::{Kind, Node};
use crate::reading::schema::{self, check_keys, wrong_shape};
use crate::template::Templates;

/// All configuration files as one.
pub(super) struct Merged {
    pub(super) raw: Object,
    pub(super) prompts: Vec<(Node, PathBuf)>,
    pub(super) providers: Vec<(Node, PathBuf)>,
    pub(super) tests: Vec<(Node, PathBuf)>,
    pub(super) scenarios: Vec<(Node, PathBuf)>,
    pub(super) defaults: Vec<(Node, PathBuf)>,
    pub(super) extensions: Vec<(Node, PathBuf)>,
    pub(super) derived_metrics: Vec<DerivedMetric>,
    pub(super) outputs: Vec<String>,
    /// The place of the red team section.
    pub(super) redteam: Option<Position>,
}

impl Merged {
    /// Merges configurations, in whose texts `templates` fill in the variables of the environment.
    pub(super) fn of(
        documents: Vec<ConfigFile>,
        templates: Option<&Templates>,
        findings: &mut Findings,
    ) -> Self {
        let mut merged = Self {
            raw: Object::new(),
            prompts: Vec::new(),
            providers: Vec::new(),
            tests: Vec::new(),
            scenarios: Vec::new(),
            defaults: Vec::new(),
            extensions: Vec::new(),
            derived_metrics: Vec::new(),
            outputs: Vec::new(),
            redteam: None,
        };
        for ConfigFile { mut root, base, .. } in documents {
            if !root.is_map() {
                wrong_shape(&root, "a configuration", "a map", findings);
                continue;
            }
            if let Some(templates) = templates {
                document::render_env(&mut root, templates);
            }
            check_keys(&root, schema::TOP, "a configuration", findings);
            merged.add(root, &base, findings);
        }
        merged
    }

    pub(super) fn add(&mut self, mut root: Node, base: &Path, findings: &mut Findings) {
        if let (Some(_), Some(targets)) = (root.get("providers"), root.get("targets")) {
            findings.add(
                Severity::Error,
                Some(&targets.at),
                "`providers` and `targets` mean the same; give one of them",
            );
        }
        for (key, known) in [("evaluateOptions", schema::EVALUATE_OPTIONS)] {
            if let Some(node) = root.get(key) {
                check_keys(node, known, &format!("`{key}`"), findings);
            }
        }
        let given = |key: &str| root.get(key).filter(|node| !node.is_null());
        if let Some(node) = given("tracing") {
            tracing::check(node, findings);
        }
        // The section may also stand without its name.
        if let Some(node) = ["redteam", "plugins", "strategies"].into_iter().find_map(given) {
            self.redteam.get_or_insert_with(|| node.at.clone());
        }
        if let Some(node) = root.get("derivedMetrics") {
            for item in node.items().unwrap_or_default() {
                check_keys(item, schema::DERIVED_METRIC, "a derived metric", findings);
                match (item.get("name").and_then(Node::text), item.get("value").and_then(Node::text)) {
                    (Some(name), Some(value)) => {
                        self.derived_metrics
                            .push(DerivedMetric { name: name.to_owned(), value: value.to_owned() });
                    }
                    _ => wrong_shape(item, "a derived metric", "a map with `name` and `value`", findings),
                }
            }
        }
        match root.get("outputPath").map(|node| &node.kind) {
            Some(Kind::Scalar(Value::String(path))) => self.outputs.push(path.clone()),
            Some(Kind::List(items)) => {
                self.outputs.extend(items.iter().filter_map(Node::text).map(str::to_owned));
            }
            _ => {}
        }
        let Value::Object(value) = root.to_value() else { return };
        let mut own = |key: &str| root.take(key).map(|node| (node, base.to_owned()));
        self.prompts.extend(own("prompts"));
        self.providers.extend(own("providers").or_else(|| own("targets")));
        self.tests.extend(own("tests"));
        self.scenarios.extend(own("scenarios"));
        self.defaults.extend(own("defaultTest"));
        self.extensions.extend(own("extensions"));
        for (key, value) in value {
            match (self.raw.get_mut(&key), value) {
                (Some(Value::Array(all)), Value::Array(more)) => {
                    for item in more {
                        // What several configurations have in common is run once.
                        if !["prompts", "providers", "targets"].contains(&key.as_str())
                            || !all.contains(&item)
                        {
                            all.push(item);
                        }
                    }
                }
                (Some(Value::Object(all)), Value::Object(more)) if key == "tags" => {
                    for (name, tag) in more {
                        all.entry(name).or_insert(tag);
                    }
                }
                (Some(Value::Object(all)), Value::Object(more)) => all.extend(more),
                (Some(Value::String(text)), Value::String(more)) if key == "description" => {
                    text.push_str(", ");
                    text.push_str(&more);
                }
                (_, value) => {
                    self.raw.insert(key, value);
                }
            }
        }
    }

    /// `nunjucksFilters`: the modules' texts by the names of their filters.
    pub(super) fn filters(
        &self,
        base: &Path,
        findings: &mut Findings,
    ) -> std::collections::HashMap<String, String> {
        let mut filters = std::collections::HashMap::new();
        for (name, path) in self.raw.get("nunjucksFilters").and_then(Value::as_object).into_iter().flatten() {
            let path = files::resolve(base, path.as_str().unwrap_or_default());
            match std::fs::read_to_string(&path) {
                Ok(text) => drop(filters.insert(name.clone(), text)),
                Err(error) => {
                    let message =
                        format!("failed to read the filter `{name}` from `{}`: {error}", path.display());
                    findings.add(Severity::Error, None, message);
                }
            }
        }
        filters
    }

    /// Sets what result files show of the run: the command line overrides the configuration, and the default test is its content.
    pub(super) fn show(&mut self, options: &LoadOptions, default_test: &Object) {
        if !options.prompts.is_empty() {
            self.raw.insert("prompts".to_owned(), json!(options.prompts));
        }
        if let Some(tests) = &options.tests {
            self.raw.insert("tests".to_owned(), json!(tests));
        }
        if let Some(targets) = self.raw.shift_remove("targets") {
            self.raw.insert("providers".to_owned(), targets);
        }
        // With several configurations, all of their default tests together.
        if self.raw.get("defaultTest").is_some_and(Value::is_string) || self.defaults.len() > 1 {
            self.raw.insert("defaultTest".to_owned(), Value::Object(default_test.clone()));
        }
        if let Some(description) = &options.description {
            self.raw.insert("description".to_owned(), json!(description));
        }
        if !options.tags.is_empty() {
            let given = options.tags.iter().map(|(key, value)| (key.clone(), json!(value)));
            match self.raw.entry("tags").or_insert_with(|| json!({})) {
                Value::Object(tags) => tags.extend(given),
                other => *other = Value::Object(given.collect()),
            }
        }
    }

    /// Reports a red team section whose attacks are not among the tests: a run that attacks nothing must not look like one that withstood.
    pub(super) fn check_attacks(&self, tests: &[Object], findings: &mut Findings) {
        let is_attack =
            |test: &Object| test.get("metadata").is_some_and(|metadata| metadata["pluginId"].is_string());
        if let Some(at) = self.redteam.as_ref().filter(|_| !tests.iter().any(is_attack)) {
            let message = "the red team section is not run: nothing would be attacked";
            let hint = "run it with `sandcove redteam run`, or the other tests alone with --lenient";
            findings.hint(Severity::Error, Some(at), message, hint);
        }
    }

    pub(super) fn description(&self) -> Option<String> {
        self.raw.get("description").and_then(Value::as_str).map(str::to_owned)
    }

    pub(super) fn run_options(&self) -> Object {
        let map = |key: &str| self.raw.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
        let mut options = map("evaluateOptions");
        // promptfoo takes a count of rows only from a number here, and from a text there.
        options.iter_mut().filter(|(key, _)| *key != "repeat").for_each(|(_, value)| as_number(value));
        let mut of_command_line = map("commandLineOptions");
        of_command_line.values_mut().for_each(as_number);
        options.extend(of_command_line);
        options
    }

    pub(super) fn concurrency(&self) -> Option<usize> {
        self.run_options().get("maxConcurrency").and_then(Value::as_f64).map(|n| n as usize)
    }

    pub(super) fn default_test(&self, options: &LoadOptions, root: &Path, findings: &mut Findings) -> Object {
        let mut all = Object::new();
        for (node, base) in &self.defaults {
            let test = match node.text() {
                Some(reference) => match document::read(&files::resolve(base, reference), findings) {
                    Ok(node) => test_cases::inline(node, base, root, findings),
                    Err(_) => {
                        let message = format!("failed to read `defaultTest` from `{reference}`");
                        findings.add(Severity::Error, Some(&node.at), message);
                        continue;
                    }
                },
                None => test_cases::inline(node.clone(), base, root, findings),
            };
            all = if all.is_empty() { test } else { test_cases::merge(&all, test) };
        }
        // As promptfoo: without a default test, the metadata of the suite is that of its tests.
        if self.defaults.is_empty()
            && let Some(Value::Object(metadata)) = self.raw.get("metadata")
        {
            all.insert("metadata".to_owned(), Value::Object(metadata.clone()));
        }
        if !options.vars.is_empty() {
            let given = options.vars.iter().map(|(key, value)| (key.clone(), json!(value)));
            match all.entry("vars").or_insert_with(|| json!({})) {
                Value::Object(vars) => vars.extend(given),
                other => *other = Value::Object(given.collect()),
            }
        }
        all
    }
}

/// Makes a number of a text that is one, as templates of variables leave it.
fn as_number(value: &mut Value) {
    if let Some(number) =
        value.as_str().and_then(|text| text.trim().parse::<f64>().ok()).filter(|n| n.is_finite())
    {
        *value = crate::model::number_value(number);
    }
}
