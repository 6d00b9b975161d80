//! Anthropic's messages.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::chat;
use super::prices::Prices;
use crate::calling::transport::{self, Request};
use crate::calling::{Call, CallError, Provider};
use crate::model::{Object, ProviderResponse, TokenUsage};
use crate::reading::Env;

/// Returns the name after `anthropic:`, if it is that of another endpoint or program and not of a model.
pub fn unsupported(id: &str) -> Option<String> {
    let kind = id.strip_prefix("anthropic:")?.split(':').next()?;
    ["completion", "claude-agent-sdk", "claude-code"].contains(&kind).then(|| kind.to_owned())
}

/// A model of Anthropic's.
pub struct Anthropic {
    id: String,
    model: String,
    env: Env,
    prices: Arc<Prices>,
}

impl Anthropic {
    /// Reads an id like `anthropic:messages:claude-…`, of a model whose answers cost what `prices` say.
    pub fn parse(id: &str, env: Env, prices: Arc<Prices>) -> Option<Self> {
        let rest = id.strip_prefix("anthropic:")?;
        let model = rest.strip_prefix("messages:").unwrap_or(rest);
        Some(Self { id: id.to_owned(), model: model.to_owned(), env, prices })
    }

    fn body(&self, prompt: &str, config: &Object) -> Result<Value, CallError> {
        let mut system = Vec::new();
        let mut messages = Vec::new();
        for message in chat::messages(prompt)? {
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
        body.insert("max_tokens".to_owned(), json!(1024));
        body.insert("messages".to_owned(), Value::Array(messages));
        body.insert("stream".to_owned(), json!(false));
        if config.get("thinking").is_none() {
            body.insert("temperature".to_owned(), json!(0));
        }
        if !system.is_empty() {
            body.insert("system".to_owned(), Value::Array(system));
        }
        for key in [
            "max_tokens",
            "temperature",
            "top_p",
            "top_k",
            "thinking",
            "tools",
            "tool_choice",
            "stop_sequences",
            "metadata",
        ] {
            if let Some(value) = config.get(key).filter(|value| !value.is_null()) {
                body.insert(key.to_owned(), value.clone());
            }
        }
        body.extend(config.get("extra_body").and_then(Value::as_object).cloned().unwrap_or_default());
        Ok(Value::Object(body))
    }

    async fn ask(&self, call: &Call<'_>) -> Result<(Value, f64), CallError> {
        let setting = |key: &str| call.config.get(key).and_then(Value::as_str).map(str::to_owned);
        let base = setting("apiBaseUrl").or_else(|| self.env.get("ANTHROPIC_BASE_URL"));
        let base = base.unwrap_or_else(|| "https://api.anthropic.com".to_owned());
        let key = setting("apiKey")
            .or_else(|| setting("apiKeyEnvar").and_then(|name| self.env.get(&name)))
            .or_else(|| self.env.get("ANTHROPIC_API_KEY"));
        let Some(key) = key else {
            return Err(CallError::NoKey { id: self.id.clone(), variable: "ANTHROPIC_API_KEY" });
        };
        let url = format!("{}/v1/messages", base.trim_end_matches('/').trim_end_matches("/v1"));
        let mut request = Request::json(url, &self.body(call.prompt, call.config)?)
            .header("x-api-key", key)
            .header("anthropic-version", "2023-06-01");
        if let Some(beta) = call.config.get("beta").and_then(Value::as_array) {
            let names: Vec<&str> = beta.iter().filter_map(Value::as_str).collect();
            request = request.header("anthropic-beta", names.join(","));
        }
        transport::ask(request, call.config).await
    }
}

impl Provider for Anthropic {
    fn id(&self) -> &str {
        &self.id
    }

    fn is_service(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        async move {
            match self.ask(call).await {
                Ok((value, took)) => {
                    let response = read(&value);
                    let usage = response.token_usage.as_ref();
                    let cost = usage
                        .and_then(|usage| self.prices.cost("anthropic", &self.model, call.config, usage));
                    ProviderResponse { latency_ms: Some(took), cost, ..response }
                }
                Err(error) => ProviderResponse::failed(error),
            }
        }
        .boxed()
    }
}

fn read(value: &Value) -> ProviderResponse {
    let parts = value.get("content").and_then(Value::as_array).cloned().unwrap_or_default();
    let texts = parts.iter().filter_map(|part| match part.get("type").and_then(Value::as_str) {
        Some("text") => part.get("text").and_then(Value::as_str).map(str::to_owned),
        Some("thinking") => {
            part.get("thinking").and_then(Value::as_str).map(|text| format!("Thinking: {text}"))
        }
        Some("tool_use") => Some(part.to_string()),
        _ => None,
    });
    let usage = |key: &str| value.pointer(&format!("/usage/{key}")).and_then(Value::as_f64);
    let (prompt, completion) = (usage("input_tokens"), usage("output_tokens"));
    ProviderResponse {
        output: Some(Value::String(texts.collect::<Vec<_>>().join("\n\n"))),
        finish_reason: value.get("stop_reason").and_then(Value::as_str).map(|reason| {
            match reason {
                "end_turn" | "stop_sequence" => "stop",
                "max_tokens" => "length",
                "tool_use" => "tool_calls",
                other => other,
            }
            .to_owned()
        }),
        cached: Some(false),
        token_usage: Some(TokenUsage {
            total: prompt.zip(completion).map(|(prompt, completion)| prompt + completion),
            prompt,
            completion,
            num_requests: Some(1.0),
            ..TokenUsage::default()
        }),
        raw: Some(value.clone()),
        ..ProviderResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_messages_are_lifted() {
        let model = Anthropic::parse("anthropic:messages:m", Env::default(), Arc::default()).unwrap();
        let prompt = r#"[{"role":"system","content":"be kind"},{"role":"user","content":"hi"}]"#;
        let body = model.body(prompt, &Object::new()).unwrap();
        let expected = json!({
            "model": "m", "max_tokens": 1024, "temperature": 0, "stream": false,
            "system": [{"type": "text", "text": "be kind"}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        });
        assert_eq!(body, expected);
    }
}
