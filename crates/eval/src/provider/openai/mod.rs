//! The OpenAI dialect: chat, responses and embeddings, of OpenAI and of services that are compatible with it.

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

/// A service that speaks the dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// The prefix of the ids of its models.
    pub name: &'static str,
    /// The address, unless one is configured.
    pub url: &'static str,
    /// The variable that holds its key.
    pub key: &'static str,
}

/// OpenAI, and services that are the same at another address.
pub const SERVICES: &[Service] = &[
    Service { name: "openai", url: "https://api.openai.com/v1", key: "OPENAI_API_KEY" },
    Service { name: "openrouter", url: "https://openrouter.ai/api/v1", key: "OPENROUTER_API_KEY" },
    Service { name: "groq", url: "https://api.groq.com/openai/v1", key: "GROQ_API_KEY" },
    Service { name: "together", url: "https://api.together.xyz/v1", key: "TOGETHER_API_KEY" },
    Service { name: "togetherai", url: "https://api.together.xyz/v1", key: "TOGETHER_API_KEY" },
    Service { name: "deepseek", url: "https://api.deepseek.com/v1", key: "DEEPSEEK_API_KEY" },
    Service { name: "mistral", url: "https://api.mistral.ai/v1", key: "MISTRAL_API_KEY" },
    Service { name: "xai", url: "https://api.x.ai/v1", key: "XAI_API_KEY" },
    Service { name: "litellm", url: "http://0.0.0.0:4000", key: "LITELLM_API_KEY" },
    Service { name: "localai", url: "http://localhost:8080/v1", key: "LOCALAI_API_KEY" },
    Service { name: "vllm", url: "http://localhost:8000/v1", key: "VLLM_API_KEY" },
];

/// Names after `openai:` that are other endpoints and programs, and not models.
const UNSUPPORTED: &[&str] = &[
    "image",
    "tts",
    "transcription",
    "realtime",
    "assistant",
    "video",
    "agents",
    "chatkit",
    "codex",
    "codex-sdk",
    "codex-app-server",
];

/// An endpoint of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// The path `chat/completions`.
    Chat,
    /// The path `completions`.
    Completion,
    /// The path `responses`.
    Responses,
    /// The path `embeddings`.
    Embedding,
    /// The path `moderations`.
    Moderation,
}

/// A model of a service.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenAi {
    id: String,
    service: Service,
    endpoint: Endpoint,
    model: String,
}

impl OpenAi {
    /// Reads an id like `openai:chat:gpt-4o`.
    ///
    /// # Errors
    /// When the service has no such endpoint here.
    pub fn parse(id: &str) -> Option<Result<Self, CallError>> {
        let (name, rest) = id.split_once(':')?;
        let service = *SERVICES.iter().find(|service| service.name == name)?;
        let (kind, model) = rest.split_once(':').unwrap_or(("", rest));
        let (endpoint, model) = match kind {
            "chat" => (Endpoint::Chat, model),
            "completion" => (Endpoint::Completion, model),
            "responses" => (Endpoint::Responses, model),
            "embedding" | "embeddings" => (Endpoint::Embedding, model),
            "moderation" => (Endpoint::Moderation, model),
            _ if service.name == "openai"
                && UNSUPPORTED.contains(&rest.split(':').next().unwrap_or(rest)) =>
            {
                let endpoint = rest.split(':').next().unwrap_or(rest).to_owned();
                return Some(Err(CallError::UnsupportedEndpoint { id: id.to_owned(), endpoint }));
            }
            _ if rest.starts_with("text-embedding") => (Endpoint::Embedding, rest),
            _ if rest.ends_with("-instruct") && service.name == "openai" => (Endpoint::Completion, rest),
            _ => (Endpoint::Chat, rest),
        };
        let model = model.to_owned();
        Some(Ok(Self { id: id.to_owned(), service, endpoint, model }))
    }

    fn url(&self, config: &Object, env: &Env) -> String {
        let text = |key: &str| {
            config.get(key).and_then(Value::as_str).map(str::to_owned).filter(|text| !text.is_empty())
        };
        let base = text("apiHost")
            .map(|host| format!("https://{host}/v1"))
            .or_else(|| text("apiBaseUrl"))
            .or_else(|| {
                let own = self.service.name == "openai";
                let host = || env.get("OPENAI_API_HOST").map(|host| format!("https://{host}/v1"));
                let urls = || env.get("OPENAI_API_BASE_URL").or_else(|| env.get("OPENAI_BASE_URL"));
                let other = format!("{}_BASE_URL", self.service.name.to_uppercase());
                if own { host().or_else(urls) } else { env.get(&other) }
            })
            .unwrap_or_else(|| self.service.url.to_owned());
        let path = match self.endpoint {
            Endpoint::Chat => "chat/completions",
            Endpoint::Completion => "completions",
            Endpoint::Responses => "responses",
            Endpoint::Embedding => "embeddings",
            Endpoint::Moderation => "moderations",
        };
        format!("{}/{path}", base.trim_end_matches('/'))
    }

    fn key(&self, config: &Object, env: &Env) -> Option<String> {
        let text = |key: &str| config.get(key).and_then(Value::as_str).map(str::to_owned);
        text("apiKey")
            .or_else(|| text("apiKeyEnvar").and_then(|name| env.get(&name)))
            .or_else(|| env.get(self.service.key))
            .filter(|key| !key.is_empty())
    }

    fn body(&self, prompt: &str, config: &Object, env: &Env) -> Result<Value, CallError> {
        let mut body = Object::new();
        body.insert("model".to_owned(), json!(self.model));
        let number = |name: &str| {
            env.get(name).and_then(|text| text.parse::<f64>().ok()).map(crate::model::number_value)
        };
        let plain = reasons(&self.model) || config.get("omitDefaults") == Some(&json!(true));
        let max = number("OPENAI_MAX_TOKENS").or_else(|| (!plain).then(|| json!(1024)));
        let temperature = number("OPENAI_TEMPERATURE").or_else(|| (!plain).then(|| json!(0)));
        let defaults = |body: &mut Object, max_name: &str| {
            for (name, value) in [(max_name, max), ("temperature", temperature)] {
                if let Some(value) = value {
                    body.insert(name.to_owned(), value);
                }
            }
        };
        match self.endpoint {
            Endpoint::Chat => {
                body.insert("messages".to_owned(), Value::Array(chat::messages(prompt)?));
                defaults(&mut body, "max_tokens");
            }
            Endpoint::Completion => {
                body.insert("prompt".to_owned(), json!(prompt));
                defaults(&mut body, "max_tokens");
            }
            Endpoint::Responses => {
                let input = match prompt.trim_start().starts_with(['[', '{'])
                    || prompt.trim_start().starts_with("- role:")
                {
                    true => Value::Array(chat::messages(prompt)?),
                    false => json!(prompt),
                };
                body.insert("input".to_owned(), input);
                defaults(&mut body, "max_output_tokens");
                body.insert("text".to_owned(), json!({"format": {"type": "text"}}));
            }
            Endpoint::Embedding => {
                body.insert("input".to_owned(), json!(prompt));
            }
            // Models that also look at images take parts.
            Endpoint::Moderation if self.model.starts_with("omni-") => {
                body.insert("input".to_owned(), json!([{"type": "text", "text": prompt}]));
            }
            Endpoint::Moderation => {
                body.insert("input".to_owned(), json!(prompt));
            }
        }
        const KEYS: &[&str] = &[
            "temperature",
            "max_tokens",
            "max_completion_tokens",
            "max_output_tokens",
            "top_p",
            "frequency_penalty",
            "presence_penalty",
            "seed",
            "stop",
            "tools",
            "tool_choice",
            "functions",
            "function_call",
            "response_format",
            "reasoning_effort",
            "verbosity",
            "reasoning",
            "instructions",
            "logprobs",
            "top_logprobs",
            "user",
            "store",
            "parallel_tool_calls",
            "service_tier",
            "dimensions",
            "text",
        ];
        for key in KEYS {
            if let Some(value) = config.get(*key).filter(|value| !value.is_null()) {
                if *key == "max_completion_tokens"
                    || (*key == "max_tokens" && self.endpoint == Endpoint::Responses)
                {
                    body.shift_remove("max_tokens");
                }
                body.insert((*key).to_owned(), value.clone());
            }
        }
        body.extend(config.get("passthrough").and_then(Value::as_object).cloned().unwrap_or_default());
        Ok(Value::Object(body))
    }

    async fn ask(&self, prompt: &str, config: &Object, env: &Env) -> Result<(Value, f64), CallError> {
        let url = self.url(config, env);
        let mut request = Request::json(url.clone(), &self.body(prompt, config, env)?);
        match self.key(config, env) {
            Some(key) => request = request.header("authorization", format!("Bearer {key}")),
            None if url.starts_with(self.service.url) && url.starts_with("https") => {
                let (id, variable) = (self.id.clone(), self.service.key);
                return Err(CallError::NoKey { id, variable });
            }
            None => {}
        }
        let set = config.get("organization").and_then(Value::as_str).map(str::to_owned);
        let organization = set.or_else(|| env.get("OPENAI_ORGANIZATION"));
        if let Some(organization) = organization.filter(|_| self.service.name == "openai") {
            request = request.header("openai-organization", organization);
        }
        transport::ask(request, config).await
    }
}

/// Models that think first take no temperature.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    ["o1", "o3", "o4", "gpt-5"].iter().any(|family| name.starts_with(family))
}

/// A model of a service, with the variables that hold addresses and keys.
#[derive(Debug)]
pub struct OpenAiProvider {
    model: OpenAi,
    env: Env,
    prices: Arc<Prices>,
}

impl OpenAiProvider {
    /// A provider of `model`, whose answers cost what `prices` say.
    pub fn new(model: OpenAi, env: Env, prices: Arc<Prices>) -> Self {
        Self { model, env, prices }
    }
}

impl Provider for OpenAiProvider {
    fn id(&self) -> &str {
        &self.model.id
    }

    fn shown_as(&self) -> BoxFuture<'_, Option<String>> {
        let plain = self.model.service.name == "openai";
        let name = plain.then(|| format!("openai:{}", self.model.model));
        std::future::ready(name).boxed()
    }

    fn is_service(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        async move {
            match self.model.ask(call.prompt, call.config, &self.env).await {
                Ok((value, took)) => {
                    let mut response = read(&value, self.model.endpoint, call.config);
                    response.latency_ms = Some(took);
                    let (service, model) = (self.model.service.name, &self.model.model);
                    let usage = response.token_usage.as_ref();
                    response.cost =
                        usage.and_then(|usage| self.prices.cost(service, model, call.config, usage));
                    response
                }
                Err(error) => ProviderResponse::failed(error),
            }
        }
        .boxed()
    }

    fn moderate<'a>(&'a self, call: &'a Call<'a>, answer: &'a str) -> BoxFuture<'a, ProviderResponse> {
        async move {
            if self.model.endpoint != Endpoint::Moderation {
                let error = format!("`{}` does not moderate; use `openai:moderation:…`", self.id());
                return ProviderResponse::failed(error);
            }
            self.call(&Call { prompt: answer, ..*call }).await
        }
        .boxed()
    }
}

/// The categories that were flagged, with the strongest score of each.
fn flags(value: &Value) -> Option<Value> {
    let mut found = Object::new();
    for result in value.get("results")?.as_array()? {
        let categories = result.get("categories").and_then(Value::as_object).into_iter().flatten();
        for (category, _) in categories.filter(|(_, flagged)| **flagged == json!(true)) {
            let score = result.pointer(&format!("/category_scores/{}", category.replace('/', "~1")));
            let score = score.and_then(Value::as_f64).unwrap_or(0.0);
            let before = found.get(category).and_then(Value::as_f64).unwrap_or(0.0);
            found.insert(category.clone(), json!(score.max(before)));
        }
    }
    let flag = |(code, score)| json!({"code": code, "description": code, "confidence": score});
    Some(found.into_iter().map(flag).collect())
}

fn read(value: &Value, endpoint: Endpoint, config: &Object) -> ProviderResponse {
    let usage = usage(value);
    let (output, finish, refusal) = match endpoint {
        Endpoint::Chat => chat_output(value),
        Endpoint::Completion => {
            (value.pointer("/choices/0/text").cloned(), value.pointer("/choices/0/finish_reason"), false)
        }
        Endpoint::Responses => (responses_output(value), value.get("status"), false),
        Endpoint::Embedding => (value.pointer("/data/0/embedding").cloned(), None, false),
        Endpoint::Moderation => (flags(value), None, false),
    };
    let Some(output) = output else {
        return ProviderResponse {
            token_usage: Some(usage),
            ..ProviderResponse::failed(format!("the answer has no output: {value}"))
        };
    };
    let structured =
        config.get("response_format").and_then(|format| format.get("type")) == Some(&json!("json_schema"));
    let output = match &output {
        Value::String(text) if structured => serde_json::from_str(text).unwrap_or(output),
        _ => output,
    };
    ProviderResponse {
        output: Some(output),
        finish_reason: finish.and_then(Value::as_str).map(str::to_lowercase),
        is_refusal: Some(refusal),
        cached: Some(false),
        token_usage: Some(usage),
        log_probs: log_probs(value),
        raw: Some(value.clone()),
        ..ProviderResponse::default()
    }
}

fn log_probs(value: &Value) -> Option<Vec<f64>> {
    let list = value.pointer("/choices/0/logprobs/content")?.as_array()?;
    Some(list.iter().filter_map(|token| token.get("logprob")?.as_f64()).collect())
}

fn chat_output(value: &Value) -> (Option<Value>, Option<&Value>, bool) {
    let message = value.pointer("/choices/0/message");
    let finish = value.pointer("/choices/0/finish_reason");
    let field = |key: &str| message.and_then(|message| message.get(key)).filter(|value| !value.is_null());
    if let Some(refusal) = field("refusal") {
        return (Some(refusal.clone()), finish, true);
    }
    let calls = field("tool_calls").or_else(|| field("function_call"));
    let content = field("content").filter(|content| *content != "" || calls.is_none());
    let output = match (content, calls) {
        (Some(_), Some(_)) => message.cloned(),
        (Some(content), None) => Some(content.clone()),
        (None, calls) => calls.cloned(),
    };
    (output, finish, false)
}

fn responses_output(value: &Value) -> Option<Value> {
    let items = value.get("output")?.as_array()?;
    let mut texts = Vec::new();
    for item in items {
        match item.get("type").and_then(Value::as_str) {
            Some("message") => {
                let parts = item.get("content").and_then(Value::as_array).into_iter().flatten();
                texts.extend(
                    parts
                        .filter_map(|part| part.get("text").or_else(|| part.get("refusal"))?.as_str())
                        .map(str::to_owned),
                );
            }
            Some("function_call") => texts.push(item.to_string()),
            _ => {}
        }
    }
    Some(Value::String(texts.join("\n")))
}

fn usage(value: &Value) -> TokenUsage {
    let usage = value.get("usage");
    let number = |keys: [&str; 2]| keys.iter().find_map(|key| usage?.get(*key)?.as_f64());
    TokenUsage {
        total: number(["total_tokens", "total_tokens"]),
        prompt: number(["prompt_tokens", "input_tokens"]),
        completion: number(["completion_tokens", "output_tokens"]),
        num_requests: Some(1.0),
        ..TokenUsage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(id: &str, prompt: &str, config: Value) -> Value {
        let model = OpenAi::parse(id).unwrap().unwrap();
        model.body(prompt, config.as_object().unwrap(), &Env::default()).unwrap()
    }

    #[test]
    fn requests_have_the_known_shape() {
        let messages = json!([{"role": "user", "content": "hi"}]);
        let plain = json!({"model": "gpt-4o", "messages": messages, "max_tokens": 1024, "temperature": 0});
        assert_eq!(body("openai:gpt-4o", "hi", json!({})), plain);
        assert_eq!(
            body("openai:chat:gpt-5-mini", "hi", json!({})),
            json!({"model": "gpt-5-mini", "messages": messages})
        );
        let responses = body("openai:responses:gpt-4o", "hi", json!({"temperature": 1}));
        let expected = json!({
            "model": "gpt-4o", "input": "hi", "max_output_tokens": 1024, "temperature": 1, "text": {"format": {"type": "text"}},
        });
        assert_eq!(responses, expected);
        let embedding = body("openai:embedding:text-embedding-3-large", "hi", json!({}));
        assert_eq!(embedding, json!({"model": "text-embedding-3-large", "input": "hi"}));
    }

    #[test]
    fn answers_are_read() {
        let value = json!({"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}], "usage": {"total_tokens": 3, "prompt_tokens": 1, "completion_tokens": 2}});
        let response = read(&value, Endpoint::Chat, &Object::new());
        assert_eq!((response.output, response.finish_reason), (Some(json!("yes")), Some("stop".to_owned())));
        let calls = json!({"choices": [{"message": {"content": null, "tool_calls": [{"id": 1}]}}]});
        assert_eq!(read(&calls, Endpoint::Chat, &Object::new()).output, Some(json!([{"id": 1}])));
        let responses =
            json!({"output": [{"type": "message", "content": [{"type": "output_text", "text": "ok"}]}]});
        assert_eq!(read(&responses, Endpoint::Responses, &Object::new()).output, Some(json!("ok")));
        let moderated = json!({"results": [{
            "flagged": true, "categories": {"hate": false, "self-harm/intent": true}, "category_scores": {"hate": 0.1, "self-harm/intent": 0.9},
        }]});
        let flag =
            json!([{"code": "self-harm/intent", "description": "self-harm/intent", "confidence": 0.9}]);
        assert_eq!(read(&moderated, Endpoint::Moderation, &Object::new()).output, Some(flag));
    }
}
