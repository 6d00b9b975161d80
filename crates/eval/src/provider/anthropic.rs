//! Anthropic's messages.

use serde_json::{Value, json};

use super::chat;
use super::prices::Prices;
use super::service::{self, Dialect};
use super::tools::{ToolCall, ToolOutcome, shape};
use crate::calling::CallError;
use crate::calling::transport::Request;
use crate::model::{Guardrails, Object, ProviderResponse, TokenUsage, number_value};
use crate::reading::Env;

/// Returns the name after `anthropic:`, if it is that of another endpoint or program and not of a model.
pub fn unsupported(id: &str) -> Option<String> {
    let kind = id.strip_prefix("anthropic:")?.split(':').next()?;
    ["completion", "claude-agent-sdk", "claude-code"].contains(&kind).then(|| kind.to_owned())
}

/// Settings that are keys of the request.
const KEYS: &[&str] = &[
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "thinking",
    "tools",
    "tool_choice",
    "stop_sequences",
    "metadata",
    "cache_control",
    "service_tier",
];
/// Details of tokens: those of prompts that the service had in its cache, and those that it stored there.
const CACHE_READ: &str = "cacheReadInputTokens";
const CACHE_WRITTEN: &str = "cacheCreationInputTokens";
/// The feature that `output_format` needs.
const STRUCTURED: &str = "structured-outputs-2025-11-13";

/// A model of Anthropic's.
pub struct Anthropic {
    id: String,
    model: String,
}

impl Anthropic {
    /// Reads an id like `anthropic:messages:claude-…`.
    pub fn parse(id: &str) -> Option<Self> {
        let rest = id.strip_prefix("anthropic:")?;
        let model = rest.strip_prefix("messages:").unwrap_or(rest);
        (!model.is_empty()).then(|| Self { id: id.to_owned(), model: model.to_owned() })
    }

    fn body(&self, prompt: &str, config: &Object, env: &Env) -> Result<Value, CallError> {
        let mut system = Vec::new();
        let mut messages = Vec::new();
        for message in chat::json_messages(prompt)? {
            let content = match message.get("content") {
                Some(Value::String(text)) => json!([{"type": "text", "text": text}]),
                Some(other) => other.clone(),
                None => json!([]),
            };
            if message.get("role") == Some(&json!("system")) {
                system.extend(content.as_array().cloned().unwrap_or_default());
            } else {
                messages.push(json!({"role": message.get("role").cloned().unwrap_or_else(|| json!("user")), "content": content}));
            }
        }
        let mut body = Object::new();
        body.insert("model".to_owned(), json!(self.model));
        let number = |name: &str| env.get(name).and_then(|text| text.parse::<f64>().ok()).map(number_value);
        let thinks = config.get("thinking").is_some_and(|thinking| thinking["type"] != "disabled");
        let max = number("ANTHROPIC_MAX_TOKENS").unwrap_or_else(|| json!(if thinks { 2048 } else { 1024 }));
        body.insert("max_tokens".to_owned(), max);
        body.insert("messages".to_owned(), Value::Array(messages));
        body.insert("stream".to_owned(), json!(false));
        body.insert("temperature".to_owned(), number("ANTHROPIC_TEMPERATURE").unwrap_or_else(|| json!(0)));
        if !system.is_empty() {
            body.insert("system".to_owned(), Value::Array(system));
        }
        service::take(&mut body, config, KEYS);
        if body.get("tools") == Some(&json!([])) {
            body.shift_remove("tools");
        }
        // The service takes one of both.
        if thinks || body.contains_key("top_p") {
            body.shift_remove("temperature");
        }
        if thinks {
            restrict(&mut body);
        }
        let mut output = Object::new();
        for (name, setting) in [("format", "output_format"), ("effort", "effort")] {
            if let Some(value) = config.get(setting) {
                output.insert(name.to_owned(), value.clone());
            }
        }
        if !output.is_empty() {
            body.insert("output_config".to_owned(), Value::Object(output));
        }
        service::lay_over(&mut body, config, "extra_body");
        Ok(Value::Object(body))
    }
}

/// Leaves out of a request what the service refuses together with thinking.
fn restrict(body: &mut Object) {
    body.shift_remove("top_k");
    if let Some(top_p) = body.get("top_p").and_then(Value::as_f64) {
        body.insert("top_p".to_owned(), number_value(top_p.clamp(0.95, 1.0)));
    }
    let forced = body
        .get("tool_choice")
        .is_some_and(|choice| ["any", "tool"].iter().any(|kind| choice["type"] == *kind));
    if forced {
        body.shift_remove("tool_choice");
    }
}

impl Dialect for Anthropic {
    fn id(&self) -> &str {
        &self.id
    }

    fn shown_as(&self) -> Option<String> {
        Some(format!("anthropic:{}", self.model))
    }

    fn request(&self, prompt: &str, config: &Object, env: &Env) -> Result<Request, CallError> {
        let base = service::text(config, "apiBaseUrl").or_else(|| env.get("ANTHROPIC_BASE_URL"));
        let base = base.unwrap_or_else(|| "https://api.anthropic.com".to_owned());
        let Some(key) = service::key(config, env, &["ANTHROPIC_API_KEY"]) else {
            return Err(CallError::NoKey { id: self.id.clone(), variable: "ANTHROPIC_API_KEY" });
        };
        let url = format!("{}/v1/messages", base.trim_end_matches('/').trim_end_matches("/v1"));
        let request = Request::json(url, &self.body(prompt, config, env)?)
            .header("x-api-key", key)
            .header("anthropic-version", "2023-06-01");
        let listed = config.get("beta").and_then(Value::as_array).into_iter().flatten();
        let mut features: Vec<&str> = listed.filter_map(Value::as_str).collect();
        if config.contains_key("output_format") && !features.contains(&STRUCTURED) {
            features.push(STRUCTURED);
        }
        Ok(if features.is_empty() { request } else { request.header("anthropic-beta", features.join(",")) })
    }

    fn read(&self, reply: &Value, config: &Object) -> ProviderResponse {
        let shows_thinking = config.get("showThinking") != Some(&json!(false));
        let mut response = read(reply, shows_thinking);
        if config.get("output_format").is_some_and(|format| format["type"] == "json_schema")
            && let Some(Value::String(text)) = &response.output
            && let Ok(value) = serde_json::from_str(text)
        {
            response.output = Some(value);
        }
        response
    }

    fn tool(&self, tool: &Value) -> Option<Value> {
        Some(shape::anthropic(tool))
    }

    fn calls(&self, reply: &Value) -> Vec<ToolCall> {
        let parts = reply.get("content").and_then(Value::as_array).into_iter().flatten();
        let calls = parts.filter(|part| part.get("type") == Some(&json!("tool_use"))).filter_map(|part| {
            let arguments = part.get("input").cloned().unwrap_or_default();
            Some(ToolCall { name: part.get("name")?.as_str()?.to_owned(), arguments, raw: part.clone() })
        });
        calls.collect()
    }

    fn follows_up(&self) -> bool {
        true
    }

    fn follow_up(
        &self,
        request: &Request,
        reply: &Value,
        calls: &[(ToolCall, ToolOutcome)],
    ) -> Option<Request> {
        let mut body: Value = serde_json::from_str(request.body.as_deref()?).ok()?;
        let results = calls.iter().map(|(call, outcome)| {
            let mut result = json!({"type": "tool_result", "tool_use_id": call.raw.get("id")});
            match outcome {
                ToolOutcome::Result(text) | ToolOutcome::Returned(text) => result["content"] = json!(text),
                other => {
                    result["content"] = json!(other.shown(&call.name));
                    result["is_error"] = json!(true);
                }
            }
            result
        });
        let results: Vec<Value> = results.collect();
        let messages = body.get_mut("messages")?.as_array_mut()?;
        messages.push(json!({"role": "assistant", "content": reply.get("content")}));
        messages.push(json!({"role": "user", "content": results}));
        // A tool that must be called would be called for ever.
        let is_forced = body.pointer("/tool_choice/type").is_some_and(|kind| kind == "any" || kind == "tool");
        if is_forced && let Some(body) = body.as_object_mut() {
            body.shift_remove("tool_choice");
        }
        Some(Request { body: Some(body.to_string()), ..request.clone() })
    }

    fn cost(&self, prices: &Prices, config: &Object, usage: &TokenUsage) -> Option<f64> {
        // Without a price of the user's own for all tokens alike, tokens of the cache have other prices: a tenth, and a quarter more.
        let is_flat = config.contains_key("cost")
            && !config.contains_key("inputCost")
            && !config.contains_key("outputCost");
        let detail = |key: &str| usage.completion_details.as_ref()?.get(key)?.as_f64();
        let (read, written) = (detail(CACHE_READ).unwrap_or(0.0), detail(CACHE_WRITTEN).unwrap_or(0.0));
        let (read_at, written_at) = if is_flat { (0.0, 0.0) } else { (0.1, 1.25) };
        let charged = |prompt: f64| prompt - read - written + read * read_at + written * written_at;
        let usage = TokenUsage { prompt: usage.prompt.map(charged), ..usage.clone() };
        prices.cost("anthropic", &self.model, config, &usage)
    }
}

fn read(value: &Value, shows_thinking: bool) -> ProviderResponse {
    let refusal = refusal(value);
    ProviderResponse {
        output: Some(Value::String(output(value, shows_thinking))),
        finish_reason: service::finish_reason(value.get("stop_reason")),
        guardrails: refusal.map(|reason| Guardrails {
            flagged: Some(true),
            reason: Some(reason),
            ..Guardrails::default()
        }),
        token_usage: Some(usage(value)),
        ..ProviderResponse::default()
    }
}

/// Returns the parts of a message as one text: what tools of the service found, such as searches, is left out, unless the model thought or
/// called a tool.
fn output(value: &Value, shows_thinking: bool) -> String {
    let parts = value.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let kind = |part: &Value| part.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let text = |part: &Value| part.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_whole =
        |part: &Value| ["tool_use", "thinking", "redacted_thinking"].contains(&kind(part).as_str());
    if !parts.iter().any(is_whole) {
        return parts.iter().map(text).collect::<Vec<_>>().join("\n\n");
    }
    let texts = parts.iter().filter_map(|part| match kind(part).as_str() {
        "text" => Some(text(part)),
        "thinking" | "redacted_thinking" if !shows_thinking => None,
        "thinking" => {
            let text = part.get("thinking").and_then(Value::as_str).filter(|text| !text.trim().is_empty());
            let signature = part.get("signature").and_then(Value::as_str);
            let signature = signature.map_or_else(String::new, |text| format!("\nSignature: {text}"));
            text.map(|text| format!("Thinking: {text}{signature}"))
        }
        "redacted_thinking" => {
            part.get("data").and_then(Value::as_str).map(|data| format!("Redacted Thinking: {data}"))
        }
        _ => Some(part.to_string()),
    });
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// The reason why the service refused to answer, if it did.
fn refusal(value: &Value) -> Option<String> {
    let details = value.get("stop_details").filter(|details| details.is_object())?;
    if value.get("stop_reason")? != "refusal" {
        return None;
    }
    let part = |key: &str| {
        let text = details.get(key)?.as_str().filter(|text| !text.is_empty())?;
        Some(format!("{key}: {text}"))
    };
    let mut parts = vec!["Content refused by Anthropic safety filters".to_owned()];
    parts.extend(["category", "explanation"].into_iter().filter_map(part));
    Some(parts.join(" — "))
}

/// The tokens of a reply. Those of prompts that the service has in its cache are counted apart there, and belong to the prompt.
fn usage(value: &Value) -> TokenUsage {
    let count = |path: &str| value.pointer(&format!("/usage/{path}")).and_then(Value::as_f64);
    let (read, written) = (count("cache_read_input_tokens"), count("cache_creation_input_tokens"));
    let cached = read.unwrap_or(0.0) + written.unwrap_or(0.0);
    let mut details = Object::new();
    if let Some(thoughts) = count("output_tokens_details/thinking_tokens") {
        details.insert("reasoning".to_owned(), number_value(thoughts));
    }
    if read.or(written).is_some() {
        details.insert(CACHE_READ.to_owned(), number_value(read.unwrap_or(0.0)));
        details.insert(CACHE_WRITTEN.to_owned(), number_value(written.unwrap_or(0.0)));
    }
    TokenUsage {
        completion_details: (!details.is_empty()).then_some(details),
        ..service::usage(None, count("input_tokens").map(|fresh| fresh + cached), count("output_tokens"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_messages_are_lifted() {
        let model = Anthropic::parse("anthropic:messages:m").unwrap();
        let prompt = r#"[{"role":"system","content":"be kind"},{"role":"user","content":"hi"}]"#;
        let body = model.body(prompt, &Object::new(), &Env::default()).unwrap();
        let expected = json!({
            "model": "m", "max_tokens": 1024, "temperature": 0, "stream": false,
            "system": [{"type": "text", "text": "be kind"}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn tokens_of_the_cache_are_counted() {
        let usage = json!({"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 40});
        let reply = json!({"content": [{"type": "text", "text": "ok"}], "usage": usage});
        let usage = read(&reply, true).token_usage.unwrap();
        assert_eq!((usage.total, usage.prompt, usage.completion), (Some(155.0), Some(150.0), Some(5.0)));
        let details = json!({"cacheReadInputTokens": 100, "cacheCreationInputTokens": 40});
        assert_eq!(usage.completion_details.as_ref(), details.as_object());
        let cost = |config: Value| {
            let model = Anthropic::parse("anthropic:messages:m").unwrap();
            model.cost(&Prices::default(), config.as_object().unwrap(), &usage).unwrap()
        };
        assert_eq!(cost(json!({"inputCost": 1, "outputCost": 2})), 10.0 + 10.0 + 50.0 + 10.0);
        assert_eq!(cost(json!({"cost": 1})), 15.0);
        let plain = read(&json!({"content": [], "usage": {"input_tokens": 1, "output_tokens": 2}}), true);
        let plain = plain.token_usage.unwrap();
        assert_eq!((plain.total, plain.completion_details), (Some(3.0), None));
    }

    #[test]
    fn searches_are_left_out_of_answers() {
        let search = json!({"type": "server_tool_use", "name": "web_search", "input": {}});
        let found = json!({"type": "web_search_tool_result", "content": []});
        let text = |text: &str| json!({"type": "text", "text": text});
        let said = |parts: Value| output(&json!({"content": parts}), true);
        assert_eq!(said(json!([text("a"), search, found, text("b")])), "a\n\n\n\n\n\nb");
        let call = json!({"type": "tool_use", "name": "f"});
        assert_eq!(said(json!([text("a"), search, call])), format!("a\n\n{search}\n\n{call}"));
        let thought = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
        assert_eq!(said(json!([thought, text("a")])), "Thinking: hm\nSignature: s\n\na");
    }

    #[test]
    fn refusals_are_flagged() {
        let details = json!({"category": "bio", "explanation": "no"});
        let reply = json!({"content": [], "stop_reason": "refusal", "stop_details": details});
        let response = read(&reply, true);
        assert_eq!(response.finish_reason.as_deref(), Some("content_filter"));
        let reason = "Content refused by Anthropic safety filters — category: bio — explanation: no";
        assert_eq!(response.guardrails.unwrap().reason.as_deref(), Some(reason));
        assert_eq!(read(&json!({"content": [], "stop_reason": "refusal"}), true).guardrails, None);
    }
}
