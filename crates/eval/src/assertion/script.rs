//! `javascript`, `python` and `ruby`: checks that are code of the configuration or of the user's files.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::grading::{Grader, GradingContext};
use crate::javascript;
use crate::model::{GradingResult, Object};
use crate::reading::files;
use crate::script::inline::{
    as_lines, inline_body, inline_function, lacks_a_name, needs_node, returns_itself,
};
use crate::script::{EntryPoint, Language, ScriptCall, ScriptError};

/// The types decided by scripts.
pub const GRADERS: &[(&str, Grader)] =
    &[("javascript", Grader::Async(grade)), ("python", Grader::Async(grade)), ("ruby", Grader::Async(grade))];

/// The hint for one line that says `return`.
const LINES: &str = "\nhint: one line is an expression; leave `return` out, or write several lines";

fn grade<'a>(cx: &'a GradingContext<'a>) -> BoxFuture<'a, GradingResult> {
    async move {
        let language = match cx.assertion.kind.as_str() {
            "python" => Language::Python,
            "ruby" => Language::Ruby,
            _ => Language::JavaScript,
        };
        let Some(Value::String(code)) = cx.value else {
            return GradingResult::broken(format!(
                "the value of `{}` must be text",
                cx.assertion.full_kind()
            ));
        };
        let file = code.strip_prefix("file://").is_some();
        let outcome = if file {
            from_file(cx, code, language).await
        } else if language == Language::JavaScript && !needs_node(code) {
            let function = inline_function(code);
            let arguments = inline_arguments(cx, code);
            match tokio::task::spawn_blocking(move || javascript::call(&function, &arguments)).await {
                Ok(Err(error)) if lacks_a_name(&error) => {
                    inline_in_worker(cx, code, language).await.map_err(|_| error.into())
                }
                Ok(value) => value.map_err(ScriptError::from),
                Err(_) => Err(ScriptError::EngineStopped),
            }
        } else {
            inline_in_worker(cx, code, language).await
        };
        match outcome {
            Ok(value) => verdict(cx, value, language, code),
            Err(error) if language != Language::JavaScript => GradingResult::failed(format!(
                "{} code execution failed: {}",
                name_of(language),
                with_traceback(&error)
            )),
            Err(error) if file => GradingResult::broken(format!("the JavaScript file failed: {error}")),
            Err(error) => {
                let hint = if returns_itself(code) { LINES } else { "" };
                GradingResult::failed(format!("Custom function threw error: {error}\n{code}{hint}"))
            }
        }
    }
    .boxed()
}

/// Returns the name of a language in reasons.
fn name_of(language: Language) -> &'static str {
    match language {
        Language::Python => "Python",
        Language::JavaScript => "JavaScript",
        Language::Ruby => "Ruby",
    }
}

/// An error with the traceback of the code that raised.
fn with_traceback(error: &ScriptError) -> String {
    match error {
        ScriptError::Raised { message, traceback } if !traceback.is_empty() => {
            format!("{message}\n{traceback}")
        }
        error => error.to_string(),
    }
}

/// The second argument of every script: what is known about the row.
pub fn script_context(cx: &GradingContext<'_>) -> Value {
    let mut context = Object::new();
    context.insert("prompt".to_owned(), json!(cx.prompt));
    context.insert("vars".to_owned(), Value::Object(cx.vars.clone()));
    context.insert("test".to_owned(), Value::Object((*cx.test.raw).clone()));
    if let Some(log_probs) = &cx.response.log_probs {
        context.insert("logProbs".to_owned(), json!(log_probs));
    }
    context.insert("provider".to_owned(), Value::Object(cx.provider.clone()));
    context.insert("providerResponse".to_owned(), json!(cx.response));
    if let Some(config) = &cx.assertion.config {
        context.insert("config".to_owned(), Value::Object(config.clone()));
    }
    if let Some(metadata) = &cx.response.metadata {
        context.insert("metadata".to_owned(), Value::Object(metadata.clone()));
    }
    if let Some(trace) = cx.trace {
        context.insert("trace".to_owned(), json!(trace));
    }
    context.insert("testIdx".to_owned(), json!(cx.row.test));
    context.insert("promptIdx".to_owned(), json!(cx.row.prompt));
    context.insert("repeatIndex".to_owned(), json!(cx.row.repeat));
    Value::Object(context)
}

/// Returns the time limit of a script: `config.timeoutMs`, the test's `options.timeoutMs`, or a minute.
fn time_limit(cx: &GradingContext<'_>) -> Duration {
    let own = cx.assertion.config.as_ref().and_then(|config| config.get("timeoutMs"));
    let ms = own.or_else(|| cx.test.options.get("timeoutMs")).and_then(Value::as_f64).unwrap_or(60_000.0);
    Duration::from_secs_f64((ms / 1000.0).clamp(0.001, 86_400.0))
}

async fn from_file(
    cx: &GradingContext<'_>,
    reference: &str,
    language: Language,
) -> Result<Value, ScriptError> {
    let (path, name) = files::split_name(reference);
    let path = cx.workers.base().join(path);
    let entry = EntryPoint::Function { path, name: name.map(str::to_owned), default: &["get_assert"] };
    call(cx, entry, language).await
}

async fn inline_in_worker(
    cx: &GradingContext<'_>,
    code: &str,
    language: Language,
) -> Result<Value, ScriptError> {
    let entry = EntryPoint::Inline {
        code: if language == Language::JavaScript { as_lines(&inline_body(code)) } else { code.to_owned() },
        parameters: &["output", "context"],
    };
    call(cx, entry, language).await
}

async fn call(cx: &GradingContext<'_>, entry: EntryPoint, language: Language) -> Result<Value, ScriptError> {
    let config = cx.assertion.config.as_ref();
    let setting = |key: &str| config.and_then(|config| config.get(key)).and_then(Value::as_str);
    let call = ScriptCall {
        time_limit: time_limit(cx),
        interpreter: setting(if language == Language::Ruby { "rubyExecutable" } else { "pythonExecutable" })
            .map(str::to_owned),
        isolated: setting("isolation") == Some("process"),
        ..ScriptCall::new(language, entry, vec![cx.output.clone(), script_context(cx)])
    };
    cx.workers.call(call).await.map(|reply| reply.value)
}

fn inline_arguments(cx: &GradingContext<'_>, code: &str) -> Vec<Value> {
    let context =
        if code.contains("context") || code.contains("arguments") { script_context(cx) } else { Value::Null };
    let env = if code.contains("process") { Value::Object(cx.workers.env().all()) } else { Value::Null };
    vec![cx.output.clone(), context, env]
}

/// The verdict that a script's value stands for.
fn verdict(cx: &GradingContext<'_>, value: Value, language: Language, code: &str) -> GradingResult {
    // What is not JavaScript says things as text and in its own way of naming.
    let foreign = (language != Language::JavaScript).then(|| name_of(language));
    let value = if foreign.is_some() { read_text(value) } else { value };
    let said_no = || {
        let who = foreign.map_or_else(|| "Custom function".to_owned(), |name| format!("{name} code"));
        let who = format!("{who} returned {}", cx.assertion.negated);
        format!("{who}\n{code}")
    };
    match value {
        Value::Bool(truth) => GradingResult::of(cx.assertion, truth, said_no),
        Value::Number(n) => {
            let score = n.as_f64().unwrap_or(0.0);
            let holds = cx.assertion.threshold.map_or(score > 0.0, |threshold| score >= threshold);
            let result = GradingResult::of(cx.assertion, holds, said_no);
            GradingResult { score, ..result }
        }
        Value::Object(map) => from_object(cx, map, foreign),
        other => GradingResult::failed(format!(
            "{} must return a boolean, a number, or an object with `pass`, `score` and `reason`, not {}",
            foreign.map_or_else(|| "Custom function".to_owned(), |name| format!("{name} assertion")),
            if other.is_null() { "nothing".to_owned() } else { other.to_string() },
        )),
    }
}

/// Python and Ruby may answer with the text of a value.
fn read_text(value: Value) -> Value {
    let Value::String(text) = &value else { return value };
    let trimmed = text.trim();
    match trimmed.to_lowercase().as_str() {
        "true" => return Value::Bool(true),
        "false" => return Value::Bool(false),
        _ => {}
    }
    if trimmed.starts_with('{')
        && let Ok(parsed) = serde_json::from_str(trimmed)
    {
        return parsed;
    }
    leading_number(trimmed).map_or(value, crate::model::number_value)
}

/// The number that a text begins with, as in `7 of 10`.
fn leading_number(text: &str) -> Option<f64> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    (1..=end).rev().find_map(|end| text[..end].parse::<f64>().ok())
}

/// Python and Ruby may name the keys of a verdict their own way, also in the verdicts inside.
fn camel_keys(map: &mut Object) {
    for (snake, camel) in [
        ("pass_", "pass"),
        ("named_scores", "namedScores"),
        ("named_score_weights", "namedScoreWeights"),
        ("component_results", "componentResults"),
        ("tokens_used", "tokensUsed"),
    ] {
        if let Some(value) = map.get(snake).cloned() {
            map.entry(camel).or_insert(value);
        }
    }
    if let Some(Value::Array(inner)) = map.get_mut("componentResults") {
        inner.iter_mut().filter_map(Value::as_object_mut).for_each(camel_keys);
    }
}

fn from_object(cx: &GradingContext<'_>, mut map: Object, foreign: Option<&str>) -> GradingResult {
    if foreign.is_some() {
        camel_keys(&mut map);
    }
    let complete = map.get("pass").is_some_and(Value::is_boolean)
        && map.get("score").is_some_and(Value::is_number)
        && map.get("reason").is_some_and(Value::is_string);
    if !complete {
        return GradingResult::failed(format!(
            "the function must return an object with `pass` (boolean), `score` (number) and `reason` (text), not {}",
            Value::Object(map)
        ));
    }
    let mut result: GradingResult = match serde_json::from_value(Value::Object(map)) {
        Ok(result) => result,
        Err(error) => {
            return GradingResult::failed(format!(
                "the returned object has a key of the wrong type: {error}"
            ));
        }
    };
    let missed = cx.assertion.threshold.filter(|threshold| result.score < *threshold);
    if let (Some(threshold), Some(name)) = (missed, foreign) {
        result.pass = false;
        result.reason =
            format!("{name} score {} is less than threshold {threshold}: {}", result.score, result.reason);
    }
    if cx.assertion.negated {
        result.pass = !result.pass;
        let who = foreign.map_or_else(|| "Custom function".to_owned(), |name| format!("{name} code"));
        result.reason =
            if result.pass { "Assertion passed".to_owned() } else { format!("{who} returned true") };
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_may_begin_with_a_number() {
        for (text, number) in
            [("0.75", Some(0.75)), ("7 of 10", Some(7.0)), ("-1e2x", Some(-100.0)), ("1e", Some(1.0))]
        {
            assert_eq!(leading_number(text), number, "{text}");
        }
        assert_eq!(leading_number("x1"), None);
        assert_eq!(leading_number(""), None);
    }
}
