//! Calling the hooks of a suite.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Observer, RunError};
use crate::config::hooks::{Hook, HookError, Moment};
use crate::config::{DerivedMetric, Prompt, Suite, scenarios};
use crate::model::{Evaluation, Object, Row};
use crate::script::{ScriptCall, Workers};
use crate::store::StoreError;
use crate::store::recording::{Recorded, Which};

/// The time limit of one call: hooks start servers and fill databases.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// The hooks of a suite. They run in one process for each language, one call after another, so that what one leaves in its module is
/// there for the next.
pub struct Hooks {
    hooks: Vec<Hook>,
    workers: Workers,
    observer: Arc<dyn Observer>,
}

impl Hooks {
    /// Parses the hooks that a suite names.
    ///
    /// # Errors
    /// When an entry is not a hook.
    pub fn new(
        references: &[String],
        workers: &Workers,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, HookError> {
        let hooks = references.iter().map(|reference| Hook::parse(reference, workers.base()));
        let workers = Workers::new(workers.base().to_owned(), workers.env().clone(), 1);
        Ok(Self { hooks: hooks.collect::<Result<_, _>>()?, workers, observer })
    }

    /// Whether the suite has no hooks.
    pub fn are_none(&self) -> bool {
        self.hooks.is_empty()
    }

    fn at(&self, moment: Moment) -> impl Iterator<Item = &Hook> {
        self.hooks.iter().filter(move |hook| hook.only.is_none_or(|only| only == moment))
    }

    /// Calls a hook and returns its value, if it returns one.
    async fn call(&self, hook: &Hook, moment: Moment, context: Value) -> Result<Option<Value>, RunError> {
        let name = moment.name();
        let arguments = match hook.only {
            Some(_) => vec![context, json!({"hookName": name})],
            None => vec![json!(name), context],
        };
        let call = ScriptCall::new(hook.language, hook.entry.clone(), arguments).within(TIME_LIMIT);
        let reply = self.workers.call(call).await.map_err(|error| RunError::Hook {
            reference: hook.reference.clone(),
            moment: name,
            error,
        })?;
        let printed = format!("{}{}", reply.stdout, reply.stderr);
        if !printed.is_empty() {
            self.observer.hook_printed(printed.trim_end_matches('\n'));
        }
        Ok(Some(reply.value).filter(|value| !value.is_null()))
    }

    /// Lets hooks change the suite before anything else is done with it.
    ///
    /// # Errors
    /// When one fails.
    pub async fn before_all(&self, suite: &mut Suite) -> Result<(), RunError> {
        for hook in self.at(Moment::BeforeAll) {
            let context = json!({"suite": suite_of(suite)});
            let before = provider_prompts(suite);
            if let Some(mut changed) = self.call(hook, Moment::BeforeAll, context).await?
                && let Value::Object(changed) = changed["suite"].take()
            {
                take_suite(suite, changed, &before)
                    .await
                    .map_err(|key| RunError::HookSuite { reference: hook.reference.clone(), key })?;
            }
        }
        Ok(())
    }

    /// Lets hooks change a test right before its row.
    ///
    /// # Errors
    /// When one fails.
    pub async fn before_each(&self, test: &mut Object) -> Result<(), RunError> {
        for hook in self.at(Moment::BeforeEach) {
            let context = json!({"test": test});
            if let Some(mut changed) = self.call(hook, Moment::BeforeEach, context).await?
                && let Value::Object(changed) = changed["test"].take()
            {
                *test = changed;
            }
        }
        Ok(())
    }

    /// Lets hooks add scores and metadata to a row.
    ///
    /// # Errors
    /// When one fails.
    pub async fn after_each(&self, test: &Object, row: &mut Row) -> Result<(), RunError> {
        for hook in self.at(Moment::AfterEach) {
            let context = json!({"test": test, "result": row});
            let Some(changed) = self.call(hook, Moment::AfterEach, context).await? else { continue };
            let changed =
                |pointer| changed.pointer(pointer).and_then(Value::as_object).cloned().unwrap_or_default();
            let scores = changed("/result/namedScores");
            row.named_scores.extend(scores.into_iter().filter(|(_, score)| score.is_number()));
            row.metadata.extend(changed("/result/metadata"));
            if let Some(response) = &mut row.response {
                let metadata = changed("/result/response/metadata");
                if !metadata.is_empty() {
                    response.metadata.get_or_insert_default().extend(metadata);
                }
            }
        }
        Ok(())
    }

    /// Passes the results of the run to hooks.
    ///
    /// # Errors
    /// When one fails.
    pub async fn after_all(
        &self,
        suite: &Value,
        evaluation: &Evaluation,
        rows: &mut Recorded,
    ) -> Result<(), RunError> {
        for hook in self.at(Moment::AfterAll) {
            let mut results = Vec::new();
            rows.texts(Which::All, |row| {
                results.push(serde_json::from_str::<Value>(row).unwrap_or_default());
                Ok::<_, StoreError>(())
            })
            .await?;
            let context = json!({
                "prompts": evaluation.columns, "results": results, "suite": suite, "evalId": evaluation.id,
                "config": evaluation.config,
            });
            self.call(hook, Moment::AfterAll, context).await?;
        }
        Ok(())
    }

    /// The suite as [`after_all`](Self::after_all) shows it; nothing if nobody asks.
    pub fn remembered(&self, suite: &Suite) -> Value {
        if self.at(Moment::AfterAll).next().is_some() { suite_of(suite) } else { Value::Null }
    }
}

/// The labels of the prompts that each provider gets.
fn provider_prompts(suite: &Suite) -> Object {
    let columns = super::expand::columns(&suite.providers, &suite.prompts);
    let mut map = Object::new();
    for (at, spec) in suite.providers.iter().enumerate() {
        let own = columns.iter().filter(|column| column.provider == at);
        let labels: Vec<&str> = own.map(|column| suite.prompts[column.prompt].label.as_str()).collect();
        map.insert(spec.name().to_owned(), json!(labels));
    }
    map
}

fn suite_of(suite: &Suite) -> Value {
    let prompts: Vec<Value> = suite
        .prompts
        .iter()
        .map(|prompt| json!({"raw": prompt.raw, "label": prompt.label, "config": prompt.config}))
        .collect();
    let providers: Vec<Value> = suite
        .providers
        .iter()
        .map(|spec| json!({"id": spec.id, "label": spec.label, "config": spec.config}))
        .collect();
    let metrics: Vec<Value> = suite
        .derived_metrics
        .iter()
        .map(|metric| json!({"name": metric.name, "value": metric.value}))
        .collect();
    let raw = |key: &str| suite.raw.get(key).cloned().unwrap_or_default();
    json!({
        "description": suite.description, "tags": raw("tags"), "prompts": prompts, "providers": providers,
        "providerPromptMap": provider_prompts(suite), "tests": suite.tests, "scenarios": [],
        "defaultTest": suite.default_test, "derivedMetrics": metrics, "nunjucksFilters": raw("nunjucksFilters"),
        "redteam": raw("redteam"), "extensions": suite.extensions, "tracing": raw("tracing"),
    })
}

/// Takes over what a hook may change. The error is the key of the wrong type.
async fn take_suite(suite: &mut Suite, mut changed: Object, before: &Object) -> Result<(), &'static str> {
    let mut list = |key: &'static str| match changed.get_mut(key).map(Value::take) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(_) => Err(key),
    };
    if let Some(prompts) = list("prompts")? {
        suite.prompts = prompts
            .iter()
            .map(|prompt| take_prompt(prompt, &suite.prompts))
            .collect::<Option<_>>()
            .ok_or("prompts")?;
    }
    if let Some(tests) = list("tests")? {
        let test = |test| match test {
            Value::Object(test) => Some(test),
            _ => None,
        };
        suite.tests = tests.into_iter().map(test).collect::<Option<_>>().ok_or("tests")?;
    }
    if let Some(metrics) = list("derivedMetrics")? {
        let metric = |metric: &Value| {
            let text = |key: &str| metric.get(key)?.as_str().map(str::to_owned);
            Some(DerivedMetric { name: text("name")?, value: text("value")? })
        };
        suite.derived_metrics = metrics.iter().map(metric).collect::<Option<_>>().ok_or("derivedMetrics")?;
    }
    let added = list("scenarios")?.unwrap_or_default();
    if !added.is_empty() {
        let more = scenarios::of_value(Value::Array(added), &suite.workers).await.ok_or("scenarios")?;
        suite.tests.extend(more);
    }
    if let Some(Value::Object(default)) = changed.get_mut("defaultTest").map(Value::take) {
        suite.default_test = default;
    }
    if let Some(Value::Object(map)) = changed.get("providerPromptMap")
        && map != before
    {
        for spec in &mut suite.providers {
            let labels = map.get(spec.name()).and_then(Value::as_array).into_iter().flatten();
            spec.prompts = Some(labels.filter_map(Value::as_str).map(str::to_owned).collect());
        }
    }
    Ok(())
}

/// A prompt that a hook returned. One that it left as it was keeps its function.
fn take_prompt(changed: &Value, before: &[Prompt]) -> Option<Prompt> {
    let text = |key: &str| changed.get(key).and_then(Value::as_str);
    let raw = text("raw").or_else(|| changed.as_str())?;
    let label = text("label").unwrap_or(raw);
    if let Some(same) = before.iter().find(|prompt| prompt.raw == raw && prompt.label == label) {
        return Some(same.clone());
    }
    let config = changed.get("config").and_then(Value::as_object).cloned();
    Some(Prompt { raw: raw.to_owned(), label: label.to_owned(), config, ..Prompt::default() })
}
