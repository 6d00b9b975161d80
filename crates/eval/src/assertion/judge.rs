//! Asking a model for a verdict: which model, with which prompt.

use std::path::Path;

use serde_json::{Value, json};

use super::error::{GraderError, Result};
use crate::calling::spec::{ProviderSpec, default_model};
use crate::calling::{Call, ORIGINAL, Role};
use crate::grading::GradingContext;
use crate::grading::aggregate::{add_tokens, zero_tokens};
use crate::model::{GradingResult, Object, TokenUsage};
use crate::template::value::to_text;
use crate::template::{Templates, prompt};

/// The model for a role when nothing names another.
fn default_grader(cx: &GradingContext<'_>, role: Role<'_>, label: &str) -> Result<ProviderSpec> {
    let has = |name: &str| cx.workers.env().get(name).is_some_and(|key| !key.is_empty());
    let kind = cx.assertion.full_kind();
    let id = match role {
        Role::Embedding => "openai:embedding:text-embedding-3-large",
        Role::Moderation(_) => "openai:moderation:omni-moderation-latest",
        Role::Classification => {
            return Err(GraderError::NoClassifier(kind));
        }
        Role::Text => {
            default_model(cx.workers.env()).ok_or_else(|| GraderError::NoModel(cx.assertion.full_kind()))?
        }
    };
    if id.starts_with("openai") && !has("OPENAI_API_KEY") {
        return Err(GraderError::NoModel(kind));
    }
    let mut spec = ProviderSpec::new(id, cx.workers.base());
    if label == "llm-rubric" && id.starts_with("openai:chat") {
        spec.config.insert("response_format".to_owned(), json!({"type": "json_object"}));
    }
    Ok(spec)
}

/// The provider that the assertion, the test or the default test names for a role.
pub fn named(cx: &GradingContext<'_>, role: Role<'_>) -> Option<ProviderSpec> {
    let named = [cx.assertion.provider.as_ref(), cx.test.options.get("provider"), cx.fallback];
    for value in named.into_iter().flatten() {
        let by_role = value
            .as_object()
            .filter(|map| !map.contains_key("id") && Role::KEYS.iter().any(|key| map.contains_key(*key)));
        let chosen = by_role.map_or(Some(value), |map| map.get(role.key()));
        if let Some(spec) = chosen.and_then(|value| ProviderSpec::from_value(value, cx.workers.base())) {
            return Some(spec);
        }
    }
    None
}

/// The provider that grades: the one that is named, else by what keys there are.
fn grader(cx: &GradingContext<'_>, role: Role<'_>, label: &str) -> Result<ProviderSpec> {
    named(cx, role).map_or_else(|| default_grader(cx, role, label), Ok)
}

/// Labels of questions whose verdicts show the prompt.
const SHOWN: &[&str] = &["llm-rubric", "agent-rubric", "trajectory:goal-success"];

/// Asks models for the verdict of one assertion, and adds up the tokens.
pub struct Judge<'a> {
    cx: &'a GradingContext<'a>,
    /// The model that is asked, whatever the suite names.
    model: Option<ProviderSpec>,
    tokens: Option<TokenUsage>,
    /// The prompt of a rubric, which the verdict shows.
    rubric: Option<String>,
}

impl<'a> Judge<'a> {
    /// Starts with no tokens, for one assertion.
    pub fn new(cx: &'a GradingContext<'a>) -> Self {
        Self { cx, model: None, tokens: None, rubric: None }
    }

    /// As [`new`](Self::new), with a model that was chosen for the type of assertion.
    pub fn with_model(cx: &'a GradingContext<'a>, model: ProviderSpec) -> Self {
        Self { model: Some(model), ..Self::new(cx) }
    }

    async fn call(&mut self, role: Role<'_>, label: &str, text: &str, vars: &Object) -> Result<Value> {
        let cx = self.cx;
        let spec = self.model.clone().map_or_else(|| grader(cx, role, label), Ok)?;
        let context = json!({"vars": vars, "prompt": {"raw": text, "label": label}, ORIGINAL: cx.provider});
        let call = Call { prompt: text, vars, config: &spec.config, context: &context };
        let response = cx.models.ask(&spec, role, &call, cx.row.repeat).await?;
        if let Some(tokens) = &response.token_usage {
            add_tokens(self.tokens.get_or_insert_with(zero_tokens), tokens);
        }
        match (response.error, response.output) {
            (Some(error), _) => Err(GraderError::Failed { id: spec.id, error }),
            (None, Some(output)) => Ok(output),
            (None, None) => Err(GraderError::NoOutput(spec.id)),
        }
    }

    /// The answer to a prompt made of a template, with its own variables and the row's. `label` tells the provider what is asked.
    ///
    /// # Errors
    /// When the prompt cannot be made, or the provider fails.
    pub async fn ask(&mut self, label: &str, default: &str, own: &[(&str, Value)]) -> Result<Value> {
        self.ask_with(label, given_prompt(self.cx), default, own).await
    }

    /// As [`ask`](Self::ask), where a suite gives the prompt under a key or an index of `rubricPrompt`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub async fn ask_part(
        &mut self,
        label: &str,
        part: &str,
        default: &str,
        own: &[(&str, Value)],
    ) -> Result<Value> {
        let given = given_prompt(self.cx)
            .and_then(|all| part.parse::<usize>().map_or_else(|_| all.get(part), |at| all.get(at)));
        let given = given.map(|given| given.get("content").unwrap_or(given));
        self.ask_with(label, given, default, own).await
    }

    async fn ask_with(
        &mut self,
        label: &str,
        given: Option<&Value>,
        default: &str,
        own: &[(&str, Value)],
    ) -> Result<Value> {
        let mut vars: Object = self.cx.vars.clone();
        // Lists stay lists for templates that go through them.
        let shown = |value: &Value| if value.is_array() { value.clone() } else { json!(to_text(value)) };
        vars.extend(own.iter().map(|(name, value)| ((*name).to_owned(), shown(value))));
        let text = graders_prompt(self.cx, given, default, &vars)?;
        self.rubric = SHOWN.contains(&label).then(|| text.clone());
        self.call(Role::Text, label, &text, &vars).await
    }

    /// As [`ask`](Self::ask), for an answer that must be text.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub async fn ask_text(&mut self, label: &str, default: &str, own: &[(&str, Value)]) -> Result<String> {
        self.ask(label, default, own).await.map(|output| to_text(&output))
    }

    /// The vector of a text.
    ///
    /// # Errors
    /// When the provider fails or gives none.
    pub async fn vector(&mut self, text: &str) -> Result<Vec<f64>> {
        let list =
            match self.call(Role::Embedding, &self.cx.assertion.kind.clone(), text, self.cx.vars).await? {
                Value::Array(items) => items.iter().filter_map(Value::as_f64).collect(),
                _ => Vec::new(),
            };
        if list.is_empty() { Err(GraderError::NoEmbedding) } else { Ok(list) }
    }

    /// The scores of a text by class.
    ///
    /// # Errors
    /// When the provider fails or cannot classify.
    pub async fn classes(&mut self, text: &str) -> Result<Object> {
        match self.call(Role::Classification, "classifier", text, self.cx.vars).await? {
            Value::Object(scores) => Ok(scores),
            other => Err(GraderError::NotScores(other)),
        }
    }

    /// Returns what a moderator flags in an answer to a prompt: a list of `{code, description}`.
    ///
    /// # Errors
    /// When the provider fails or does not moderate.
    pub async fn flags(&mut self, prompt: &str, answer: &str) -> Result<Vec<Value>> {
        match self.call(Role::Moderation(answer), "moderation", prompt, self.cx.vars).await? {
            Value::Array(flags) => Ok(flags),
            other => Err(GraderError::NotFlags(other)),
        }
    }

    /// The verdict, with the tokens it took.
    pub fn verdict(self, result: Result<GradingResult>) -> GradingResult {
        let mut result = match (result, self.rubric) {
            (Ok(mut verdict), Some(rubric)) => {
                verdict
                    .metadata
                    .get_or_insert_default()
                    .insert("renderedGradingPrompt".to_owned(), json!(rubric));
                verdict
            }
            (result, _) => result.unwrap_or_else(failed),
        };
        result.tokens_used = result.tokens_used.or(self.tokens);
        result
    }
}

/// Returns the prompt for graders that the assertion or the test gives.
fn given_prompt<'a>(cx: &GradingContext<'a>) -> Option<&'a Value> {
    cx.assertion.rubric_prompt.as_ref().or_else(|| cx.test.options.get("rubricPrompt"))
}

/// Returns the rubric of an assertion as graders see it: what a list holds is text, and written without spaces. A prompt of the suite's own
/// may need none.
///
/// # Errors
/// If there is neither a rubric nor a prompt.
pub fn rubric(cx: &GradingContext<'_>) -> Result<Value> {
    let is_whole = |item: &Value| item.is_object() || item.is_array();
    let item = |item: &Value| if is_whole(item) { json!(item.to_string()) } else { item.clone() };
    match cx.value.filter(|value| !value.is_null() && **value != "") {
        Some(Value::Array(items)) => Ok(Value::Array(items.iter().map(item).collect())),
        Some(other) => Ok(other.clone()),
        None if given_prompt(cx).is_some() => Ok(json!("")),
        None => Err(GraderError::NoRubric(cx.assertion.full_kind())),
    }
}

/// Returns the template of a grader's prompt: text, a chat or a file of the suite below `base`, else the default.
///
/// # Errors
/// If the file cannot be read.
pub fn template(base: &Path, given: Option<&Value>, default: &str) -> Result<String> {
    Ok(match given {
        Some(Value::String(path)) if path.starts_with("file://") => {
            let path = crate::reading::files::resolve(base, path);
            std::fs::read_to_string(&path).map_err(|error| GraderError::ReadPrompt { path, error })?
        }
        Some(Value::String(text)) => text.clone(),
        Some(chat) => chat.to_string(),
        None => default.to_owned(),
    })
}

/// The prompt for a grader.
fn graders_prompt(
    cx: &GradingContext<'_>,
    given: Option<&Value>,
    default: &str,
    vars: &Object,
) -> Result<String> {
    let raw = template(cx.workers.base(), given, default)?;
    let templates = Templates::new(cx.workers.env().own().clone()).with_base(cx.workers.base());
    Ok(prompt::prompt(&templates, &raw, vars, prompt::Switches::default())?)
}

/// A grader that failed says nothing about the answer: the row becomes an error.
pub fn failed(error: GraderError) -> GradingResult {
    let mut metadata = Object::new();
    metadata.insert("graderError".to_owned(), json!(true));
    GradingResult { metadata: Some(metadata), ..GradingResult::broken(error) }
}

/// The verdict of a score that must reach a threshold; `not-` turns both around.
pub fn scored(cx: &GradingContext<'_>, name: &str, score: f64, default: f64) -> GradingResult {
    let threshold = cx.assertion.threshold.unwrap_or(default);
    let enough = score >= threshold - f64::EPSILON;
    let negated = cx.assertion.negated;
    GradingResult {
        pass: enough != negated,
        score: if negated { 1.0 - score } else { score },
        reason: format!("{name} {score:.2} is {} {threshold}", if enough { ">=" } else { "<" }),
        ..GradingResult::default()
    }
}
