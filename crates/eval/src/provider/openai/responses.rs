//! Bodies of requests to the endpoint `responses`, which has places of its own for the format of the answer and for the effort, and
//! refuses settings of chats that it does not know.

use serde_json::{Value, json};

use super::reasons;
use crate::calling::CallError;
use crate::model::{Object, number_value};
use crate::provider::{chat, service};
use crate::reading::Env;

/// Settings that are keys of the request.
const KEYS: &[&str] = &[
    "instructions",
    "tool_choice",
    "max_tool_calls",
    "include",
    "previous_response_id",
    "truncation",
    "metadata",
    "background",
    "webhook_url",
    "user",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
];

/// Settings that are keys of the request and either true or false, whatever stands for it.
const SWITCHES: &[&str] = &["parallel_tool_calls", "store"];

/// The name of a schema that has none.
const NAME: &str = "response_schema";

/// Returns the body of a request to a model.
///
/// # Errors
/// [`CallError`] for a prompt that looks like JSON and is not.
pub fn body(model: &str, prompt: &str, config: &Object, env: &Env) -> Result<Object, CallError> {
    let mut body = Object::new();
    body.insert("model".to_owned(), json!(model));
    let start = prompt.trim_start();
    let input = match start.starts_with(['[', '{']) || start.starts_with("- role:") {
        true => Value::Array(chat::messages(prompt)?),
        false => json!(prompt),
    };
    body.insert("input".to_owned(), input);
    service::take(&mut body, config, KEYS);
    for key in SWITCHES {
        if let Some(value) = config.get(*key) {
            body.insert((*key).to_owned(), json!(is_true(value)));
        }
    }
    if let Some(tools) = config.get("tools").filter(|tools| !tools.is_null()) {
        body.insert("tools".to_owned(), flat_tools(tools));
    }
    if let Some(name) = body.get("tool_choice").and_then(|choice| choice.pointer("/function/name")).cloned() {
        body.insert("tool_choice".to_owned(), json!({"type": "function", "name": name}));
    }
    let thinks = reasons(model) || model.starts_with("codex-mini");
    sampling(&mut body, thinks, config, env);
    let mut text = match config.get("text") {
        Some(Value::Object(own)) if !config.contains_key("response_format") => own.clone(),
        _ => [("format".to_owned(), format(config.get("response_format")))].into_iter().collect(),
    };
    if let Some(verbosity) = config.get("verbosity").filter(|_| model.contains("gpt-5")) {
        text.insert("verbosity".to_owned(), verbosity.clone());
    }
    body.insert("text".to_owned(), Value::Object(text));
    service::lay_over(&mut body, config, "passthrough");
    body.shift_remove("max_tokens");
    Ok(body)
}

/// Sets what a model samples with, or how much it thinks first.
fn sampling(body: &mut Object, thinks: bool, config: &Object, env: &Env) {
    let variable = |names: &[&str]| {
        let texts = names.iter().filter_map(|name| env.get(name));
        texts.filter_map(|text| text.parse::<f64>().ok()).map(number_value).next()
    };
    let given = |key: &str| config.get(key).filter(|value| !value.is_null()).cloned();
    let default = |value: i64| {
        let wanted = config.get("omitDefaults") != Some(&json!(true)) && !thinks;
        wanted.then(|| json!(value))
    };
    let names: &[&str] = match thinks {
        true => &["OPENAI_MAX_COMPLETION_TOKENS", "OPENAI_MAX_TOKENS"],
        false => &["OPENAI_MAX_TOKENS"],
    };
    let longest = given("max_output_tokens").or_else(|| variable(names)).or_else(|| default(1024));
    let temperature =
        given("temperature").or_else(|| variable(&["OPENAI_TEMPERATURE"])).or_else(|| default(0));
    let reasoning =
        given("reasoning").and_then(|reasoning| reasoning.as_object().cloned()).unwrap_or_default();
    let effort = reasoning.get("effort").cloned().or_else(|| given("reasoning_effort")).filter(|_| thinks);
    let nucleus = given("top_p").or_else(|| variable(&["OPENAI_TOP_P"]));
    let nucleus = nucleus.filter(|_| effort.as_ref().is_none_or(|effort| *effort == "none"));
    for (key, value) in
        [("max_output_tokens", longest), ("temperature", temperature.filter(|_| !thinks)), ("top_p", nucleus)]
    {
        if let Some(value) = value {
            body.insert(key.to_owned(), value);
        }
    }
    if thinks && (effort.is_some() || !reasoning.is_empty()) {
        let mut whole = Object::new();
        whole.extend(effort.map(|effort| ("effort".to_owned(), effort)));
        whole.extend(reasoning);
        body.insert("reasoning".to_owned(), Value::Object(whole));
    }
}

/// The format of the answer that `response_format` asks for. A schema is beside its name, and is kept strictly.
fn format(wanted: Option<&Value>) -> Value {
    let of = |path: &str| wanted.and_then(|wanted| wanted.pointer(path)).filter(|value| !value.is_null());
    match of("/type").and_then(Value::as_str) {
        Some("json_object") => json!({"type": "json_object"}),
        Some("json_schema") => {
            let name =
                of("/json_schema/name").or_else(|| of("/name")).cloned().unwrap_or_else(|| json!(NAME));
            let schema = of("/schema").or_else(|| of("/json_schema/schema"));
            json!({"type": "json_schema", "name": name, "schema": schema, "strict": true})
        }
        _ => json!({"type": "text"}),
    }
}

/// Tools of chats as this endpoint has them: what is below `function` stands beside the type.
fn flat_tools(tools: &Value) -> Value {
    let Value::Array(tools) = tools else { return tools.clone() };
    let flat = tools.iter().map(|tool| match (tool.as_object(), tool.get("function")) {
        (Some(whole), Some(Value::Object(function))) if whole.get("type") == Some(&json!("function")) => {
            let mut flat = whole.clone();
            flat.shift_remove("function");
            flat.extend(function.clone());
            Value::Object(flat)
        }
        _ => tool.clone(),
    });
    Value::Array(flat.collect())
}

/// Whether JavaScript takes a value for true.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(model: &str, config: Value) -> Value {
        Value::Object(body(model, "hi", config.as_object().unwrap(), &Env::default()).unwrap())
    }

    #[test]
    fn formats_have_the_shape_of_this_endpoint() {
        let format =
            |wanted: Value| of("gpt-4o", json!({"response_format": wanted}))["text"]["format"].clone();
        let schema = json!({"type": "object"});
        let strict =
            |name: &str| json!({"type": "json_schema", "name": name, "schema": schema, "strict": true});
        assert_eq!(format(json!({"type": "json_object", "x": 1})), json!({"type": "json_object"}));
        let nested = json!({"name": "n", "strict": false, "description": "d", "schema": schema});
        assert_eq!(format(json!({"type": "json_schema", "json_schema": nested})), strict("n"));
        assert_eq!(format(json!({"type": "json_schema", "name": "flat", "schema": schema})), strict("flat"));
        assert_eq!(format(json!({"type": "json_schema", "schema": schema})), strict("response_schema"));
        assert_eq!(format(json!({"type": "xml"})), json!({"type": "text"}));
        assert_eq!(of("gpt-4o", json!({}))["text"], json!({"format": {"type": "text"}}));
    }

    #[test]
    fn settings_of_chats_are_left_out() {
        let settings = json!({
            "max_tokens": 7, "seed": 3, "stop": ["x"], "frequency_penalty": 1, "logprobs": true, "verbosity": "low",
            "reasoning": {"effort": "low"}, "store": 1, "parallel_tool_calls": 0, "passthrough": {"extra": 1},
        });
        let expected = json!({
            "model": "gpt-4o", "input": "hi", "store": true, "parallel_tool_calls": false, "max_output_tokens": 1024, "temperature": 0,
            "text": {"format": {"type": "text"}}, "extra": 1,
        });
        assert_eq!(of("gpt-4o", settings), expected);
    }

    #[test]
    fn models_that_think_get_an_effort_and_no_temperature() {
        let asked = of(
            "gpt-5",
            json!({"reasoning_effort": "high", "top_p": 0.5, "temperature": 1, "verbosity": "low"}),
        );
        let expected = json!({
            "model": "gpt-5", "input": "hi", "reasoning": {"effort": "high"}, "text": {"format": {"type": "text"}, "verbosity": "low"},
        });
        assert_eq!(asked, expected);
        let asked = of("o3-mini", json!({"reasoning": {"effort": "none", "summary": "auto"}, "top_p": 0.4}));
        assert_eq!(
            (&asked["reasoning"], &asked["top_p"]),
            (&json!({"effort": "none", "summary": "auto"}), &json!(0.4))
        );
    }

    #[test]
    fn tools_of_chats_are_flat() {
        let tool = json!({"type": "function", "function": {"name": "f", "parameters": {}}});
        let asked = of("gpt-4o", json!({"tools": [tool, {"type": "web_search"}], "tool_choice": tool}));
        assert_eq!(
            asked["tools"],
            json!([{"type": "function", "name": "f", "parameters": {}}, {"type": "web_search"}])
        );
        assert_eq!(asked["tool_choice"], json!({"type": "function", "name": "f"}));
    }
}
