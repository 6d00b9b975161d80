//! Checks of the tools an answer calls, by name and by the schemas its provider was given.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use super::error::CheckError;
use crate::grading::{Grader, GradingContext};
use crate::model::{GradingResult, number};
use crate::reading::diagnostic::Diagnostic;
use crate::reading::files;
use crate::reading::node::Node;

pub const GRADERS: &[(&str, Grader)] = &[
    ("tool-call-f1", Grader::Pure(tool_call_f1)),
    ("is-valid-openai-tools-call", Grader::Pure(valid_tools_call)),
    ("is-valid-openai-function-call", Grader::Pure(valid_function_call)),
    ("is-valid-function-call", Grader::Pure(valid_function_call)),
];

/// Reason why a call is not valid, or cannot be checked: the reason of the verdict, which is a failure either way.
#[derive(Debug, thiserror::Error)]
enum CallProblem {
    #[error("Provider does not have functionality for checking function call.")]
    NotOpenAi,
    #[error("OpenAI did not return a valid-looking function call: {0}")]
    NotACall(Value),
    #[error("OpenAI did not return a valid-looking tools response: {0}")]
    NotCalls(Value),
    #[error("MCP tool call failed for {name}: {error}")]
    Mcp { name: String, error: String },
    #[error("No tools configured in provider, but output contains tool calls")]
    NoTools,
    #[error("failed to read `{}`: {error}", .path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("{0}")]
    Parse(Diagnostic),
    #[error("the arguments of the call to \"{name}\" are not JSON: {error}")]
    Arguments { name: String, error: serde_json::Error },
    #[error("Called \"{0}\", but there is no function with that name")]
    UnknownFunction(String),
    #[error("Call to \"{name}\" does not match schema: {problem}")]
    Mismatch { name: String, problem: String },
    #[error(transparent)]
    Schema(#[from] CheckError),
}

fn tool_call_f1(cx: &GradingContext<'_>) -> GradingResult {
    let wanted: BTreeSet<String> = super::text::list(cx.value).into_iter().collect();
    if wanted.is_empty() {
        return GradingResult::broken("`tool-call-f1` needs the names of tools");
    }
    let called = called(cx.output);
    let matched = wanted.intersection(&called).count() as f64;
    let share = |total: usize| if total == 0 { 0.0 } else { matched / total as f64 };
    let (precision, recall) = (share(called.len()), share(wanted.len()));
    let f1 = if matched == 0.0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) };
    let threshold = cx.assertion.threshold.unwrap_or(1.0);
    let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    GradingResult {
        pass: (f1 >= threshold) != cx.assertion.negated,
        score: f1,
        reason: format!(
            "Tool Call F1: {f1:.3} (precision={precision:.3}, recall={recall:.3}). Expected: [{}], Called: [{}]{}",
            list(&wanted),
            list(&called),
            if f1 < threshold { format!(", threshold {}", number::text(threshold)) } else { String::new() },
        ),
        ..GradingResult::default()
    }
}

/// Returns the names of the tools that an answer calls. A text is JSON, or has JSON on lines.
fn called(output: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let Value::String(text) = output else {
        names(output, false, &mut found);
        return found;
    };
    match serde_json::from_str(text) {
        Ok(value) => names(&value, false, &mut found),
        Err(_) => text
            .lines()
            .filter_map(|line| serde_json::from_str(line.trim()).ok())
            .for_each(|value| names(&value, false, &mut found)),
    }
    found
}

/// Adds the names of called tools, in the shapes of the large services. In a list whatever has a name is a call.
fn names(value: &Value, is_listed: bool, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| names(item, true, found)),
        Value::Object(map) => {
            let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
            let function = map
                .get("function")
                .or_else(|| map.get("functionCall"))
                .and_then(|call| text(call.get("name")));
            let is_call = is_listed
                || matches!(map.get("type").and_then(Value::as_str), Some("tool_use" | "function_call"));
            found.extend(function.or_else(|| if is_call { text(map.get("name")) } else { None }));
            for key in ["tool_calls", "toolCalls", "content", "parts", "toolCall", "functionCalls"] {
                if let Some(inner) = map.get(key) {
                    names(inner, false, found);
                }
            }
        }
        _ => {}
    }
}

/// A list in the provider's configuration, from a file if it says so.
fn configured(cx: &GradingContext<'_>, key: &str) -> Result<Option<Vec<Value>>, CallProblem> {
    let value = cx.provider.get("config").and_then(|config| config.get(key));
    let loaded = match value {
        Some(Value::String(reference)) if reference.starts_with("file://") => {
            let path = files::resolve(cx.workers.base(), reference);
            let text = std::fs::read_to_string(&path)
                .map_err(|error| CallProblem::Read { path: path.clone(), error })?;
            let node = Node::parse(&text, &path.as_path().into()).map_err(CallProblem::Parse)?;
            Some(node.to_value())
        }
        other => other.cloned(),
    };
    Ok(loaded.and_then(|value| value.as_array().cloned()))
}

/// Holds a call `{name, arguments}` against the function of that name.
fn check(call: &Value, functions: &[Value]) -> Result<(), CallProblem> {
    let field = |key: &str| call.get(key).and_then(Value::as_str);
    let (Some(name), Some(arguments)) = (field("name"), field("arguments")) else {
        return Err(CallProblem::NotACall(call.clone()));
    };
    let arguments: Value = serde_json::from_str(arguments)
        .map_err(|error| CallProblem::Arguments { name: name.to_owned(), error })?;
    let schema = functions
        .iter()
        .find(|function| function.get("name").and_then(Value::as_str) == Some(name))
        .and_then(|function| function.get("parameters"))
        .ok_or_else(|| CallProblem::UnknownFunction(name.to_owned()))?;
    match super::structured::schema_problem(schema, &arguments)? {
        Some(problem) => Err(CallProblem::Mismatch { name: name.to_owned(), problem }),
        None => Ok(()),
    }
}

/// `not-` makes no difference to what is valid, here and where this type comes from.
fn verdict(result: Result<String, CallProblem>) -> GradingResult {
    match result {
        Ok(reason) => GradingResult::passed(1.0, reason),
        Err(problem) => GradingResult::failed(problem.to_string()),
    }
}

fn valid_function_call(cx: &GradingContext<'_>) -> GradingResult {
    let checked = || {
        let id = cx.provider.get("id").and_then(Value::as_str).unwrap_or_default();
        if !id.starts_with("openai:") {
            return Err(CallProblem::NotOpenAi);
        }
        let call = cx.output.get("function_call").unwrap_or(cx.output);
        check(call, &configured(cx, "functions")?.unwrap_or_default())?;
        Ok("Assertion passed".to_owned())
    };
    verdict(checked())
}

fn valid_tools_call(cx: &GradingContext<'_>) -> GradingResult {
    verdict(tools_call(cx))
}

fn tools_call(cx: &GradingContext<'_>) -> Result<String, CallProblem> {
    // Results of MCP tools come as text.
    let named = |mark: &str| {
        let rest = cx.output_text.split_once(mark)?.1;
        rest.strip_prefix(" (")?.split_once(')').map(|(name, rest)| (name.to_owned(), rest.to_owned()))
    };
    if cx.output_text.contains("MCP Tool Error") {
        let (name, rest) =
            named("MCP Tool Error").unwrap_or_else(|| ("unknown".to_owned(), ": unknown error".to_owned()));
        let error = rest.trim_start_matches(':').trim().lines().next().unwrap_or_default().to_owned();
        return Err(CallProblem::Mcp { name, error });
    }
    if cx.output_text.contains("MCP Tool Result") {
        let name = named("MCP Tool Result").map_or_else(|| "unknown".to_owned(), |(name, _)| name);
        return Ok(format!("MCP tool call succeeded for {name}"));
    }
    let output = cx.output.get("tool_calls").unwrap_or(cx.output);
    let text = |call: &Value, key: &str| {
        call.get("function").and_then(|function| function.get(key)?.as_str()).is_some()
    };
    let calls = output
        .as_array()
        .filter(|calls| {
            !calls.is_empty() && calls.iter().all(|call| text(call, "name") && text(call, "arguments"))
        })
        .ok_or_else(|| CallProblem::NotCalls(output.clone()))?;
    let tools = configured(cx, "tools")?.ok_or(CallProblem::NoTools)?;
    let functions: Vec<Value> = tools
        .iter()
        .filter(|tool| tool.get("type").and_then(Value::as_str) == Some("function"))
        .filter_map(|tool| tool.get("function").cloned())
        .collect();
    calls.iter().try_for_each(|call| check(&call["function"], &functions))?;
    Ok("Assertion passed".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_are_known_by_their_shapes() {
        for (output, names) in [
            (json!({"name": "f", "arguments": "{}"}), ""),
            (json!([{"name": "f", "arguments": "{}"}]), "f"),
            (json!({"tool_calls": [{"function": {"name": "f"}}, {"name": "g"}]}), "f g"),
            (json!({"type": "tool_use", "name": "f", "input": {}}), "f"),
            (json!([{"functionCall": {"name": "f"}}]), "f"),
            (json!({"toolCall": {"functionCalls": [{"name": "f"}]}}), "f"),
            (json!("{\"name\": \"f\", \"arguments\": \"{}\"}"), ""),
            (json!("Well.\n{\"type\": \"tool_use\", \"name\": \"f\"}"), "f"),
        ] {
            let found: Vec<String> = called(&output).into_iter().collect();
            assert_eq!(found.join(" "), names, "{output}");
        }
    }
}
