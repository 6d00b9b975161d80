//! All assertions of a row.

use serde_json::{Value, json};

use super::expand::RowPlan;
use super::{Run, transform};
use crate::assertion::aggregate::Aggregate;
use crate::assertion::{Grader, GradingContext, RowId, registry};
use crate::config::files;
use crate::model::{Assertion, GradingResult, Object, ProviderResponse, Row};
use crate::worker::{Entry, Language, ScriptCall};

/// What stays the same for all assertions of a row.
struct Judge<'a> {
    run: &'a Run,
    plan: &'a RowPlan,
    prompt: &'a str,
    vars: &'a Object,
    response: &'a ProviderResponse,
    latency_ms: f64,
    provider: Object,
}

/// The row's verdict.
pub async fn grade(
    run: &Run,
    plan: &RowPlan,
    row: &Row,
    prompt: &str,
    vars: &Object,
    response: &ProviderResponse,
) -> GradingResult {
    let spec = &run.providers[run.columns[plan.prompt_idx].provider].0;
    let mut provider = Object::new();
    provider.insert("id".to_owned(), json!(spec.id));
    if let Some(label) = &spec.label {
        provider.insert("label".to_owned(), json!(label));
    }
    provider.insert("config".to_owned(), Value::Object(spec.config.clone()));
    let judge = Judge { run, plan, prompt, vars, response, latency_ms: row.latency_ms, provider };
    let mut row_total = Aggregate::new(plan.test.threshold);
    let short = crate::config::env::is_on("PROMPTFOO_SHORT_CIRCUIT_TEST_FAILURES");
    for assertion in &plan.test.assertions {
        let weight = assertion.weight();
        if matches!(assertion.kind.as_str(), "select-best" | "max-score" | "human") {
            continue;
        }
        let metric = judge.metric(assertion);
        if assertion.kind == "assert-set" {
            let mut set = Aggregate::new(assertion.threshold);
            for child in &assertion.children {
                set.add(judge.one(child).await, child.weight(), judge.metric(child).as_deref());
            }
            let mut result = set.result();
            let children = result.component_results.take().unwrap_or_default();
            result
                .metadata
                .get_or_insert_with(Object::new)
                .insert("assertionSet".to_owned(), set_facts(assertion));
            row_total.add(result, weight, metric.as_deref());
            row_total.list(children);
        } else {
            let result = judge.one(assertion).await;
            let stop = short && !result.pass;
            row_total.add(result, weight, metric.as_deref());
            if stop {
                break;
            }
        }
    }
    let mut result = row_total.result();
    if !plan.test.assertions.is_empty() && result.component_results.as_ref().is_some_and(Vec::is_empty) {
        // All that there is compares rows, which comes later.
        result.score = 0.0;
    }
    match &plan.test.scoring_function {
        Some(function) => judge.scored(function, result).await,
        None => result,
    }
}

fn set_facts(set: &Assertion) -> Value {
    let mut facts = Object::new();
    facts.insert("type".to_owned(), json!("assert-set"));
    facts.insert("assertionCount".to_owned(), json!(set.children.len()));
    for key in ["metric", "threshold", "weight"] {
        if let Some(value) = set.raw.get(key) {
            facts.insert(key.to_owned(), value.clone());
        }
    }
    Value::Object(facts)
}

impl Judge<'_> {
    fn metric(&self, assertion: &Assertion) -> Option<String> {
        let metric = assertion.metric.as_ref()?;
        Some(self.run.templates.render(metric, self.vars).unwrap_or_else(|_| metric.clone()))
    }

    async fn one(&self, assertion: &Assertion) -> GradingResult {
        let mut result = self.decide(assertion).await;
        if assertion.weight == Some(0.0) {
            result.pass = true;
        }
        if assertion.kind == "guardrails"
            && !result.pass
            && assertion.config.as_ref().and_then(|config| config.get("purpose")) == Some(&json!("redteam"))
        {
            result.metadata.get_or_insert_with(Object::new).insert("guarded".to_owned(), json!(true));
        }
        result.assertion.get_or_insert_with(|| Value::Object(assertion.raw.clone()));
        result
    }

    async fn decide(&self, assertion: &Assertion) -> GradingResult {
        let Some(grader) = registry::grader(&assertion.kind) else {
            return GradingResult::broken(format!("there is no assertion type `{}`", assertion.full_kind()));
        };
        let (value, rendered) = match self.value(assertion).await {
            Ok(value) => value,
            Err(error) => return GradingResult::broken(error),
        };
        let mut output = self.response.output.clone().unwrap_or_default();
        if let Some(code) = &assertion.transform {
            let context = json!({"vars": self.vars, "prompt": {"raw": self.prompt}, "metadata": self.response.metadata});
            match transform::apply(code, output, context, "output", &self.run.services).await {
                Ok(changed) => output = changed,
                Err(error) => return GradingResult::broken(error),
            }
        }
        let text;
        let output_text = match &output {
            Value::String(text) => text.as_str(),
            other => {
                text = other.to_string();
                &text
            }
        };
        let cx = GradingContext {
            assertion,
            value: value.as_ref(),
            output: &output,
            output_text,
            vars: self.vars,
            prompt: self.prompt,
            response: self.response,
            latency_ms: self.latency_ms,
            provider: &self.provider,
            test: &self.plan.test,
            row: RowId { test: self.plan.test_idx, prompt: self.plan.prompt_idx, repeat: self.plan.repeat },
            services: &self.run.services,
        };
        let mut result = match grader {
            Grader::Pure(decide) => decide(&cx),
            Grader::Async(decide) => decide(&cx).await,
        };
        if let Some(rendered) = rendered {
            result
                .metadata
                .get_or_insert_with(Object::new)
                .insert("renderedAssertionValue".to_owned(), rendered);
        }
        result
    }

    /// The value with templates rendered and files loaded; and its text, if rendering changed it.
    async fn value(&self, assertion: &Assertion) -> Result<(Option<Value>, Option<Value>), String> {
        let Some(value) = &assertion.value else { return Ok((None, None)) };
        let rendered = match value {
            Value::String(text) => Value::String(
                self.run
                    .templates
                    .render(text, self.vars)
                    .map_err(|error| format!("the value cannot be rendered: {error}"))?,
            ),
            Value::Array(items) => {
                let render = |item: &Value| match item {
                    Value::String(text) => self.run.templates.render(text, self.vars).map(Value::String),
                    other => Ok(other.clone()),
                };
                Value::Array(
                    items
                        .iter()
                        .map(render)
                        .collect::<Result<_, _>>()
                        .map_err(|error| format!("the value cannot be rendered: {error}"))?,
                )
            }
            other => other.clone(),
        };
        let changed = (rendered != *value && rendered.is_string()).then(|| rendered.clone());
        let script = matches!(assertion.kind.as_str(), "javascript" | "python" | "ruby");
        match &rendered {
            Value::String(reference) if reference.starts_with("file://") && !script => {
                Ok((Some(self.file(reference).await?), changed))
            }
            _ => Ok((Some(rendered), changed)),
        }
    }

    /// The value that a file stands for.
    async fn file(&self, reference: &str) -> Result<Value, String> {
        let (path, name) = files::split_name(reference);
        let whole = self.run.services.base.join(path);
        let extension = files::extension(reference);
        let python = extension == "py";
        if python || files::is_javascript(&extension) {
            let default: &[&str] = if python { &["get_assert"] } else { &["default"] };
            let context = json!({"vars": self.vars, "prompt": self.prompt, "test": self.plan.test.raw});
            let call = ScriptCall {
                language: if python { Language::Python } else { Language::JavaScript },
                entry: Entry::Function { path: whole, name: name.map(str::to_owned), default },
                arguments: vec![self.response.output.clone().unwrap_or_default(), context],
                time_limit: std::time::Duration::from_secs(60),
                interpreter: None,
                isolated: false,
            };
            return match self.run.services.workers.call(call).await.map_err(|error| error.to_string())?.value
            {
                Value::Bool(_) | Value::Null => {
                    Err(format!("`{reference}` must give the expected value, not a verdict"))
                }
                value => Ok(value),
            };
        }
        let text = std::fs::read_to_string(&whole)
            .map_err(|error| format!("failed to read `{}`: {error}", whole.display()))?;
        match extension.as_str() {
            "json" | "yaml" | "yml" => {
                let node = crate::config::node::Node::parse(&text, &whole.as_path().into());
                node.map(|node| node.to_value()).map_err(|finding| finding.to_string())
            }
            "txt" | "md" | "" => Ok(Value::String(text.trim().to_owned())),
            other => Err(format!("`.{other}` is no kind of file that a value is read from")),
        }
    }

    /// The verdict that the test's own function makes from the scores.
    async fn scored(&self, function: &Value, result: GradingResult) -> GradingResult {
        let Value::String(reference) = function else {
            return GradingResult {
                pass: false,
                score: 0.0,
                reason: "`assertScoringFunction` must be a `file://` path".to_owned(),
                ..result
            };
        };
        let (path, name) = files::split_name(reference);
        let python = files::extension(reference) == "py";
        let default: &[&str] = if python { &["get_score"] } else { &["default"] };
        let context = json!({
            "threshold": self.plan.test.threshold, "componentResults": result.component_results, "tokensUsed": result.tokens_used,
        });
        let call = ScriptCall {
            language: if python { Language::Python } else { Language::JavaScript },
            entry: Entry::Function {
                path: self.run.services.base.join(path),
                name: name.map(str::to_owned),
                default,
            },
            arguments: vec![json!(result.named_scores), context],
            time_limit: std::time::Duration::from_secs(60),
            interpreter: None,
            isolated: false,
        };
        let outcome = match self.run.services.workers.call(call).await {
            Ok(reply) => serde_json::from_value::<GradingResult>(reply.value.clone())
                .map_err(|_| format!("it must return `pass`, `score` and `reason`, not {}", reply.value)),
            Err(error) => Err(error.to_string()),
        };
        match outcome {
            Ok(own) => GradingResult { pass: own.pass, score: own.score, reason: own.reason, ..result },
            Err(error) => {
                let reason = format!("Scoring function error: {error}");
                GradingResult { pass: false, score: 0.0, reason, ..result }
            }
        }
    }
}
