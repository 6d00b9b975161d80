//! All assertions of a row.

use serde_json::{Value, json};

use super::Run;
use super::error::RowError;
use super::expand::Plan;
use crate::assertion::{attack, registry};
use crate::grading::aggregate::Aggregate;
use crate::grading::{Grader, GradingContext, RowId};
use crate::model::{Assertion, GradingResult, Object, ProviderResponse, Row, number_value};
use crate::reading::files;
use crate::reading::node::Node;
use crate::script::transform;
use crate::traces::Trace;

/// The answer of a row, with what it answers.
#[derive(Clone, Copy)]
pub struct Answered<'a> {
    /// The rendered prompt.
    pub prompt: &'a str,
    /// The variables after rendering.
    pub vars: &'a Object,
    /// The answer.
    pub response: &'a ProviderResponse,
    /// The spans of the provider, if the row is traced.
    pub trace: Option<&'a Trace>,
}

/// The part of the context that all assertions of a row share.
struct RowContext<'a> {
    run: &'a Run,
    plan: &'a Plan,
    prompt: &'a str,
    vars: &'a Object,
    response: &'a ProviderResponse,
    trace: Option<&'a Trace>,
    latency_ms: f64,
    provider: Object,
}

/// The row's verdict.
pub async fn grade(run: &Run, plan: &Plan, row: &Row, answered: &Answered<'_>) -> GradingResult {
    let shared = RowContext::new(run, plan, answered, row.latency_ms);
    let assertions = &plan.case().assertions;
    let later =
        |assertion: &Assertion| matches!(assertion.kind.as_str(), "select-best" | "max-score" | "human");
    let threshold = plan.case().threshold;
    // Where all that there is comes later, there is no score yet.
    let mut row_total = match !assertions.is_empty() && assertions.iter().all(later) {
        true => Aggregate::of_set(threshold),
        false => Aggregate::new(threshold),
    };
    // Sets are decided when their assertions are, after the others: the last of them that fails says why the row does.
    let mut sets = Vec::new();
    let short = run.workers.env().is_on("PROMPTFOO_SHORT_CIRCUIT_TEST_FAILURES");
    for assertion in assertions.iter().filter(|assertion| !later(assertion)) {
        let weight = assertion.weight();
        let metric = shared.metric(assertion);
        if assertion.kind == "assert-set" {
            let mut set = Aggregate::of_set(assertion.threshold);
            for child in &assertion.children {
                set.add(shared.one(child).await, child.weight(), shared.metric(child).as_deref());
            }
            let mut result = set.result();
            result
                .metadata
                .get_or_insert_with(Object::new)
                .insert("assertionSet".to_owned(), set_facts(assertion));
            sets.extend((!result.pass).then(|| result.reason.clone()));
            row_total.add(result, weight, metric.as_deref());
        } else {
            let result = shared.one(assertion).await;
            let stop = short && !result.pass;
            row_total.add(result, weight, metric.as_deref());
            if stop {
                break;
            }
        }
    }
    if let Some(reason) = sets.pop() {
        row_total.fail(reason);
    }
    let result = row_total.result();
    match &plan.case().scoring_function {
        Some(function) => shared.scored(function, result).await,
        None => result,
    }
}

/// The verdict on one message of an attack, by the assertion of its plugin; none if the test has no such assertion.
pub async fn attack(run: &Run, plan: &Plan, answered: &Answered<'_>) -> Option<GradingResult> {
    let is_attack = |assertion: &&Assertion| assertion.kind.starts_with(attack::PREFIX);
    let assertion = plan.case().assertions.iter().find(is_attack)?;
    Some(RowContext::new(run, plan, answered, 0.0).one(assertion).await)
}

/// Whether a reference is one to a file with functions.
fn is_program(reference: &str) -> bool {
    let extension = files::extension(reference);
    matches!(extension.as_str(), "py" | "rb") || files::is_javascript(&extension)
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

impl<'a> RowContext<'a> {
    fn new(run: &'a Run, plan: &'a Plan, answered: &Answered<'a>, latency_ms: f64) -> Self {
        let Answered { prompt, vars, response, trace } = *answered;
        let spec = &run.providers[run.columns[plan.prompt_idx].provider].0;
        let mut provider = Object::new();
        provider.insert("id".to_owned(), json!(spec.id));
        if let Some(label) = &spec.label {
            provider.insert("label".to_owned(), json!(label));
        }
        provider.insert("config".to_owned(), Value::Object(spec.config.clone()));
        Self { run, plan, prompt, vars, response, trace, latency_ms, provider }
    }

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
            return GradingResult::broken(format!("unknown assertion type `{}`", assertion.full_kind()));
        };
        let (value, rendered) = match self.value(assertion).await {
            Ok(value) => value,
            Err(error) => return GradingResult::broken(error),
        };
        let mut output = self.response.output.clone().unwrap_or_default();
        if let Some(code) = &assertion.transform {
            let context = json!({"vars": self.vars, "prompt": {"raw": self.prompt}, "metadata": self.response.metadata});
            match transform::apply(code, output, context, "output", &self.run.workers).await {
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
            test: self.plan.case(),
            row: RowId { test: self.plan.test_idx, prompt: self.plan.prompt_idx, repeat: self.plan.repeat },
            workers: &self.run.workers,
            sandboxes: &self.run.sandboxes,
            models: &self.run.models,
            fallback: self.run.fallback(assertion),
            trace: self.trace,
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
    async fn value(&self, assertion: &Assertion) -> Result<(Option<Value>, Option<Value>), RowError> {
        let Some(value) = &assertion.value else { return Ok((None, None)) };
        let rendered = match value {
            _ if self.run.workers.env().is_on("PROMPTFOO_DISABLE_TEMPLATING") => value.clone(),
            Value::String(text) => {
                Value::String(self.run.templates.render(text, self.vars).map_err(RowError::Value)?)
            }
            Value::Array(items) => {
                let render = |item: &Value| match item {
                    Value::String(text) if text.starts_with("file://") => self.data(text),
                    Value::String(text) => {
                        let rendered = self.run.templates.render(text, self.vars);
                        rendered.map(Value::String).map_err(RowError::Value)
                    }
                    other => Ok(other.clone()),
                };
                Value::Array(items.iter().map(render).collect::<Result<_, _>>()?)
            }
            other => other.clone(),
        };
        let script = matches!(assertion.kind.as_str(), "javascript" | "python" | "ruby");
        let rendered = match &rendered {
            // A program is called, and code in a text file is read.
            Value::String(reference)
                if reference.starts_with("file://") && !(script && is_program(reference)) =>
            {
                self.file(reference).await?
            }
            _ => rendered,
        };
        let changed = (rendered != *value && rendered.is_string()).then(|| rendered.clone());
        Ok((Some(rendered), changed))
    }

    /// The value that a file stands for.
    async fn file(&self, reference: &str) -> Result<Value, RowError> {
        let extension = files::extension(reference);
        if extension == "py" || files::is_javascript(&extension) {
            let mut context =
                json!({"vars": self.vars, "prompt": self.prompt, "test": *self.plan.case().raw});
            if let Some(trace) = self.trace {
                context["trace"] = json!(trace);
            }
            let arguments = vec![self.response.output.clone().unwrap_or_default(), context];
            let invoked = self.run.workers.invoke(reference, &["get_assert"], arguments).await;
            return match invoked? {
                Value::Bool(_) | Value::Null => Err(RowError::ValueIsVerdict(reference.to_owned())),
                value => Ok(value),
            };
        }
        self.data(reference)
    }

    /// The data in a file.
    fn data(&self, reference: &str) -> Result<Value, RowError> {
        let extension = files::extension(reference);
        let (path, _) = files::split_name(reference);
        let whole = self.run.workers.base().join(path);
        let text = std::fs::read_to_string(&whole)
            .map_err(|error| RowError::ReadValue { path: whole.clone(), error })?;
        match extension.as_str() {
            "json" | "yaml" | "yml" => {
                let node = Node::parse(&text, &whole.as_path().into());
                node.map(|node| node.to_value()).map_err(RowError::ParseValue)
            }
            "txt" | "md" | "" => Ok(Value::String(text.trim().to_owned())),
            other => Err(RowError::ValueExtension(other.to_owned())),
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
        // Functions look for what is not set as JavaScript has it, and not as null.
        let mut context =
            Object::from_iter([("componentResults".to_owned(), json!(result.component_results))]);
        context.extend(self.plan.case().threshold.map(|at| ("threshold".to_owned(), number_value(at))));
        context.extend(result.tokens_used.as_ref().map(|tokens| ("tokensUsed".to_owned(), json!(tokens))));
        let arguments = vec![json!(result.named_scores), Value::Object(context)];
        let outcome = match self.run.workers.invoke(reference, &["func", "get_score"], arguments).await {
            Ok(value) => over(&result, &value)
                .ok_or_else(|| format!("it must return `pass`, `score` and `reason`, not {value}")),
            Err(error) => Err(error.to_string()),
        };
        match outcome {
            Ok(own) => own,
            Err(error) => {
                let reason = format!("Scoring function error: {error}");
                GradingResult { pass: false, score: 0.0, reason, ..result }
            }
        }
    }
}

/// Returns a verdict with what a function of the suite said over it; nothing if it is not one.
fn over(result: &GradingResult, said: &Value) -> Option<GradingResult> {
    let is_verdict =
        said.get("pass")?.is_boolean() && said.get("score")?.is_number() && said.get("reason")?.is_string();
    let (Value::Object(mut whole), Some(said)) = (json!(result), said.as_object().filter(|_| is_verdict))
    else {
        return None;
    };
    let mut metadata = result.metadata.clone().unwrap_or_default();
    metadata.extend(said.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default());
    whole.extend(said.clone());
    if !metadata.is_empty() {
        whole.insert("metadata".to_owned(), Value::Object(metadata));
    }
    let whole: GradingResult = serde_json::from_value(Value::Object(whole)).ok()?;
    Some(GradingResult { row_error: result.row_error.clone(), ..whole })
}
