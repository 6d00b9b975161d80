//! The OpenAI dialect: chat, responses and embeddings, of OpenAI and of services that are compatible with it.

mod message;
pub mod replies;
mod responses;
mod services;

use serde_json::{Value, json};

use super::chat;
use super::prices::Prices;
use super::service::{self, Dialect};
use super::tools::{self, ToolCall, ToolOutcome};
use crate::calling::CallError;
use crate::calling::transport::{Request, ServiceReply};
use crate::model::{Object, ProviderResponse, TokenUsage};
use crate::reading::Env;
use services::{OpenAiService, SERVICES};

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

/// Models of OpenAI that answer at the endpoint `responses`, and not in chats.
const RESPONSES_ONLY: &[&str] = &[
    "computer-use-preview",
    "computer-use-preview-2025-03-11",
    "gpt-4o-2024-07-18",
    "gpt-5-codex",
    "gpt-5-codex-mini",
    "gpt-5-pro",
    "gpt-5-pro-2025-10-06",
    "gpt-5.1-codex",
    "gpt-5.1-codex-max",
    "gpt-5.1-codex-mini",
    "gpt-5.2-codex",
    "gpt-5.2-pro",
    "gpt-5.2-pro-2025-12-11",
    "gpt-5.3-codex",
    "gpt-5.4-pro",
    "gpt-5.4-pro-2026-03-05",
    "gpt-5.5-pro",
    "gpt-5.5-pro-2026-04-23",
    "gpt-5.6-luna",
    "gpt-5.6-sol",
    "gpt-5.6-terra",
    "o1-pro",
    "o1-pro-2025-03-19",
    "o3-deep-research",
    "o3-deep-research-2025-06-26",
    "o3-pro",
    "o3-pro-2025-06-10",
    "o4-mini-deep-research",
    "o4-mini-deep-research-2025-06-26",
];

/// Models of OpenAI that complete a text.
const COMPLETION_ONLY: &[&str] =
    &["gpt-3.5-turbo-instruct", "gpt-3.5-turbo-instruct-0914", "babbage-002", "davinci-002"];

/// Words of ids of other services that name endpoints, and are not part of a model's name.
const OTHER_ENDPOINTS: &[&str] =
    &["image", "video", "audio", "voice", "tts", "transcription", "realtime", "agent", "agents"];

/// Settings that are keys of the request.
const KEYS: &[&str] = &[
    "temperature",
    "max_tokens",
    "max_completion_tokens",
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
    "logprobs",
    "top_logprobs",
    "user",
    "store",
    "parallel_tool_calls",
    "service_tier",
    "dimensions",
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

impl Endpoint {
    /// Returns the endpoint that a word of an id names, as in `openai:chat:gpt-4o`.
    pub fn named(word: &str) -> Option<Self> {
        Some(match word {
            "chat" => Self::Chat,
            "completion" => Self::Completion,
            "responses" => Self::Responses,
            "embedding" | "embeddings" => Self::Embedding,
            "moderation" => Self::Moderation,
            _ => return None,
        })
    }

    /// Returns the model of OpenAI that is asked where none is named.
    fn usual_model(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses => "gpt-4.1-2025-04-14",
            Self::Completion => "gpt-3.5-turbo-instruct",
            Self::Embedding => "text-embedding-3-large",
            Self::Moderation => "omni-moderation-latest",
        }
    }

    /// Returns the path below the address of the service.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "chat/completions",
            Self::Completion => "completions",
            Self::Responses => "responses",
            Self::Embedding => "embeddings",
            Self::Moderation => "moderations",
        }
    }
}

/// A model of a service.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenAi {
    id: String,
    service: OpenAiService,
    endpoint: Endpoint,
    model: String,
}

impl OpenAi {
    /// Reads an id like `openai:chat:gpt-4o`. Where an id of OpenAI itself names an endpoint only, the model is that of the
    /// configuration, else the usual one of the endpoint.
    ///
    /// # Errors
    /// [`CallError`] for an endpoint that the service does not have here, and for an id without a model.
    pub fn parse(id: &str, config: &Object) -> Option<Result<Self, CallError>> {
        let (name, rest) = id.split_once(':')?;
        let service = *SERVICES.iter().find(|service| service.name == name)?;
        let own = service.name == "openai";
        let (kind, model) = match rest.split_once(':') {
            Some(parts) => parts,
            None if own && Endpoint::named(rest).is_some() => (rest, ""),
            None => ("", rest),
        };
        let configured = config.get("model").and_then(Value::as_str).filter(|model| !model.trim().is_empty());
        let (endpoint, model) = match Endpoint::named(kind) {
            Some(endpoint) if own && model.is_empty() => {
                (endpoint, configured.unwrap_or(endpoint.usual_model()))
            }
            Some(endpoint) => (endpoint, model),
            None if own && UNSUPPORTED.contains(&rest.split(':').next().unwrap_or(rest)) => {
                let endpoint = rest.split(':').next().unwrap_or(rest).to_owned();
                return Some(Err(CallError::UnsupportedEndpoint { id: id.to_owned(), endpoint }));
            }
            None if !own && OTHER_ENDPOINTS.contains(&kind) => {
                return Some(Err(CallError::UnsupportedEndpoint {
                    id: id.to_owned(),
                    endpoint: kind.to_owned(),
                }));
            }
            None if rest.starts_with("text-embedding") => (Endpoint::Embedding, rest),
            None if own && rest.starts_with("gpt-realtime") => {
                let endpoint = "realtime".to_owned();
                return Some(Err(CallError::UnsupportedEndpoint { id: id.to_owned(), endpoint }));
            }
            None if own && RESPONSES_ONLY.contains(&rest) => (Endpoint::Responses, rest),
            None if own && COMPLETION_ONLY.contains(&rest) => (Endpoint::Completion, rest),
            None => (Endpoint::Chat, rest),
        };
        if model.is_empty() {
            return Some(Err(CallError::NoModel(id.to_owned())));
        }
        Some(Ok(Self { id: id.to_owned(), service, endpoint, model: model.to_owned() }))
    }

    fn url(&self, config: &Object, env: &Env) -> String {
        let host = |host| format!("https://{host}/v1");
        let base = service::text(config, "apiHost")
            .map(host)
            .or_else(|| service::text(config, "apiBaseUrl"))
            .or_else(|| env.get(self.service.host_variable()?).map(host))
            .or_else(|| self.service.address_variables().iter().find_map(|name| env.get(name)))
            .unwrap_or_else(|| self.service.url.to_owned());
        format!("{}/{}", base.trim_end_matches('/'), self.endpoint.path())
    }
}

impl Dialect for OpenAi {
    fn id(&self) -> &str {
        &self.id
    }

    fn shown_as(&self) -> Option<String> {
        let (name, model) = (self.service.name, &self.model);
        let is_chat = self.endpoint == Endpoint::Chat;
        match name {
            "openai" | "localai" => Some(format!("{name}:{model}")),
            "litellm" | "llamaapi" | "mistral" | "moonshot" if is_chat => Some(format!("{name}:{model}")),
            "novita" if is_chat => Some(format!("{name}:chat:{model}")),
            _ => None,
        }
    }

    fn moderates(&self) -> bool {
        self.endpoint == Endpoint::Moderation
    }

    fn request(&self, prompt: &str, config: &Object, env: &Env) -> Result<Request, CallError> {
        let url = self.url(config, env);
        let body = body(self.service.name, &self.model, self.endpoint, prompt, config, env)?;
        let mut request = Request::json(url.clone(), &body);
        match service::key(config, env, &[self.service.key]) {
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
        Ok(request)
    }

    fn read(&self, reply: &Value, config: &Object) -> ProviderResponse {
        replies::read(reply, self.endpoint, self.service.name, config)
    }

    /// A service that takes a prompt for an attack has refused it.
    fn read_refusal(&self, reply: &ServiceReply) -> Option<ProviderResponse> {
        let is_refused = reply.value.pointer("/error/code") == Some(&json!("invalid_prompt"));
        let answers = [Endpoint::Chat, Endpoint::Responses].contains(&self.endpoint);
        (is_refused && answers).then(|| replies::refused(reply.status, &reply.value, self.endpoint))
    }

    fn tool(&self, tool: &Value) -> Option<Value> {
        replies::tool(tool, self.endpoint)
    }

    fn calls(&self, reply: &Value) -> Vec<ToolCall> {
        replies::calls(reply, self.endpoint)
    }

    fn resolved(
        &self,
        reply: &Value,
        response: ProviderResponse,
        calls: &[(ToolCall, ToolOutcome)],
    ) -> ProviderResponse {
        match self.endpoint {
            Endpoint::Responses => replies::resolved(reply, response, calls),
            _ => match tools::joined(calls) {
                Some(text) => ProviderResponse { output: Some(Value::String(text)), ..response },
                None => response,
            },
        }
    }

    fn cost(&self, prices: &Prices, config: &Object, usage: &TokenUsage) -> Option<f64> {
        prices.cost(self.service.name, &self.model, config, usage)
    }

    fn surcharge(&self, response: &ProviderResponse, config: &Object) -> f64 {
        match (self.endpoint, &response.raw) {
            _ if self.service.name != "openai" => 0.0,
            // Models that search before each answer.
            (Endpoint::Chat, _) if self.model.starts_with("gpt-5-search-api") => 0.01,
            (Endpoint::Chat, _) if self.model.contains("-search-preview") => 0.025,
            (Endpoint::Responses, Some(reply)) => {
                let thinks = reasons(&self.model) || self.model.contains("deep-research");
                replies::searches(reply, thinks, config)
            }
            _ => 0.0,
        }
    }
}

/// Returns the body of a request to a model.
///
/// # Errors
/// [`CallError`] for a prompt that looks like JSON and is not.
pub fn body(
    service_name: &str,
    model: &str,
    endpoint: Endpoint,
    prompt: &str,
    config: &Object,
    env: &Env,
) -> Result<Value, CallError> {
    let mut body = Object::new();
    body.insert("model".to_owned(), json!(model));
    let number =
        |name: &str| env.get(name).and_then(|text| text.parse::<f64>().ok()).map(crate::model::number_value);
    let plain = reasons(model) || config.get("omitDefaults") == Some(&json!(true));
    let max = number("OPENAI_MAX_TOKENS").or_else(|| (!plain).then(|| json!(1024)));
    let temperature = number("OPENAI_TEMPERATURE").or_else(|| (!plain).then(|| json!(0)));
    let (max, temperature) = match service_name {
        "litellm" => (None, None),
        "localai" => (None, Some(json!(0.7))),
        _ => (max, temperature),
    };
    let defaults = |body: &mut Object, max_name: &str| {
        for (name, value) in [(max_name, max), ("temperature", temperature)] {
            if let Some(value) = value {
                body.insert(name.to_owned(), value);
            }
        }
    };
    match endpoint {
        Endpoint::Chat => {
            body.insert("messages".to_owned(), Value::Array(chat::messages(prompt)?));
            defaults(&mut body, "max_tokens");
        }
        Endpoint::Completion => {
            body.insert("prompt".to_owned(), json!(prompt));
            defaults(&mut body, "max_tokens");
        }
        Endpoint::Responses => return responses::body(model, prompt, config, env).map(Value::Object),
        Endpoint::Embedding => {
            body.insert("input".to_owned(), json!(prompt));
        }
        // Models that also look at images take parts.
        Endpoint::Moderation if model.starts_with("omni-") => {
            body.insert("input".to_owned(), json!([{"type": "text", "text": prompt}]));
        }
        Endpoint::Moderation => {
            body.insert("input".to_owned(), json!(prompt));
        }
    }
    service::take(&mut body, config, KEYS);
    if reasons(model) && service_name == "openai" {
        for key in ["temperature", "top_p", "presence_penalty", "frequency_penalty", "max_tokens"] {
            body.shift_remove(key);
        }
        if let Some(temperature) =
            number("OPENAI_TEMPERATURE").filter(|_| !config.contains_key("temperature"))
        {
            body.insert("temperature".to_owned(), temperature);
        }
    }
    if endpoint == Endpoint::Chat && service_name == "openai" {
        converse(&mut body, model, config);
    }
    if service_name == "mistral" && endpoint == Endpoint::Chat {
        mistral(&mut body, config);
    }
    if service_name == "openrouter" {
        service::take(&mut body, config, &["transforms", "models", "route", "provider"]);
    }
    if service_name == "openai" && endpoint == Endpoint::Completion {
        completion(&mut body, config, env);
    }
    if body.contains_key("max_completion_tokens") {
        body.shift_remove("max_tokens");
    }
    service::lay_over(&mut body, config, "passthrough");
    Ok(Value::Object(body))
}

/// Makes the body of a request what the endpoint `chat/completions` of the service itself takes: settings of reasoning only where the model
/// knows them.
fn converse(body: &mut Object, model: &str, config: &Object) {
    service::take(
        body,
        config,
        &["metadata", "tool_resources", "prompt_cache_key", "prompt_cache_retention"],
    );
    let model = model.trim_start_matches("ft:");
    let of_series = ["o1", "o3", "o4"].iter().any(|series| model.starts_with(series));
    if !of_series {
        body.shift_remove("reasoning");
    }
    if !reasons(model) && !model.contains("gpt-oss") {
        body.shift_remove("reasoning_effort");
    }
    if !model.starts_with("gpt-5") {
        body.shift_remove("verbosity");
    }
}

/// Makes the body of a request what Mistral takes.
fn mistral(body: &mut Object, config: &Object) {
    if !config.contains_key("temperature") {
        body.shift_remove("temperature");
    }
    body.entry("top_p").or_insert(json!(1));
    body.insert("random_seed".to_owned(), config.get("random_seed").cloned().unwrap_or_default());
    service::take(body, config, &["safe_prompt", "prompt_mode", "n"]);
}

/// Adds what OpenAI's older models are asked with unless they are asked otherwise.
fn completion(body: &mut Object, config: &Object, env: &Env) {
    service::take(body, config, &["best_of"]);
    let number = |name: &str, default: i64| {
        let set = env.get(name).and_then(|text| text.parse::<f64>().ok());
        set.map_or_else(|| json!(default), crate::model::number_value)
    };
    for (key, value) in [
        ("best_of", number("OPENAI_BEST_OF", 1)),
        ("frequency_penalty", number("OPENAI_FREQUENCY_PENALTY", 0)),
        ("presence_penalty", number("OPENAI_PRESENCE_PENALTY", 0)),
        ("top_p", number("OPENAI_TOP_P", 1)),
        ("stop", json!(["<|im_end|>", "<|endoftext|>"])),
    ] {
        body.entry(key).or_insert(value);
    }
}

/// Models that think first take no temperature.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    ["o1", "o3", "o4", "gpt-5"].iter().any(|family| name.starts_with(family))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(id: &str) -> OpenAi {
        OpenAi::parse(id, &Object::new()).unwrap().unwrap()
    }

    fn body_of(id: &str, prompt: &str, config: Value) -> Value {
        let OpenAi { model, endpoint, .. } = model(id);
        body("openai", &model, endpoint, prompt, config.as_object().unwrap(), &Env::default()).unwrap()
    }

    #[test]
    fn requests_have_the_known_shape() {
        let messages = json!([{"role": "user", "content": "hi"}]);
        let plain = json!({"model": "gpt-4o", "messages": messages, "max_tokens": 1024, "temperature": 0});
        assert_eq!(body_of("openai:gpt-4o", "hi", json!({})), plain);
        assert_eq!(
            body_of("openai:chat:gpt-5-mini", "hi", json!({})),
            json!({"model": "gpt-5-mini", "messages": messages})
        );
        let limited =
            json!({"model": "gpt-4o", "messages": messages, "temperature": 0, "max_completion_tokens": 5});
        assert_eq!(body_of("openai:gpt-4o", "hi", json!({"max_completion_tokens": 5})), limited);
        let responses = body_of("openai:responses:gpt-4o", "hi", json!({"temperature": 1}));
        let expected = json!({
            "model": "gpt-4o", "input": "hi", "max_output_tokens": 1024, "temperature": 1, "text": {"format": {"type": "text"}},
        });
        assert_eq!(responses, expected);
        let completion = body_of("openai:completion:m", "hi", json!({"best_of": 3}));
        assert_eq!((&completion["best_of"], &completion["top_p"]), (&json!(3), &json!(1)));
        let embedding = body_of("openai:embedding:text-embedding-3-large", "hi", json!({}));
        assert_eq!(embedding, json!({"model": "text-embedding-3-large", "input": "hi"}));
    }

    #[test]
    fn services_are_at_their_addresses() {
        let none = Object::new();
        let env = |name: &str, value: &str| Env::new([(name.to_owned(), json!(value))].into_iter().collect());
        for (id, url) in [
            (
                "fireworks:accounts/fireworks/models/m",
                "https://api.fireworks.ai/inference/v1/chat/completions",
            ),
            ("cerebras:llama3.1-8b", "https://api.cerebras.ai/v1/chat/completions"),
            ("perplexity:sonar", "https://api.perplexity.ai/chat/completions"),
            ("lmstudio:completion:m", "http://localhost:1234/v1/completions"),
            ("github:openai/gpt-5", "https://models.github.ai/inference/chat/completions"),
        ] {
            assert_eq!(model(id).url(&none, &Env::default()), url);
        }
        let own = env("FIREWORKS_API_BASE_URL", "http://host/v1/");
        assert_eq!(model("fireworks:m").url(&none, &own), "http://host/v1/chat/completions");
        let own = env("LMSTUDIO_BASE_URL", "http://host/v1");
        assert_eq!(model("lmstudio:m").url(&none, &own), "http://host/v1/chat/completions");
        let own = env("MISTRAL_API_HOST", "host");
        assert_eq!(model("mistral:m").url(&none, &own), "https://host/v1/chat/completions");
        let own = env("LITELLM_API_BASE", "http://host");
        assert_eq!(model("litellm:m").url(&none, &own), "http://host/chat/completions");
        let own = env("OPENAI_API_HOST", "host");
        assert_eq!(model("openai:m").url(&none, &own), "https://host/v1/chat/completions");
        assert_ne!(model("groq:m").url(&none, &own), "https://host/v1/chat/completions");
    }

    #[test]
    fn results_show_models_without_the_endpoint() {
        for (id, shown) in [
            ("openai:chat:m", Some("openai:m")),
            ("mistral:chat:m", Some("mistral:m")),
            ("mistral:embedding:m", None),
            ("localai:completion:m", Some("localai:m")),
            ("novita:m", Some("novita:chat:m")),
            ("groq:m", None),
        ] {
            assert_eq!(model(id).shown_as().as_deref(), shown, "{id}");
        }
    }

    #[test]
    fn a_model_is_named() {
        for id in ["openai:", "perplexity:", "mistral:chat:"] {
            let parsed = OpenAi::parse(id, &Object::new());
            assert!(matches!(parsed, Some(Err(CallError::NoModel(_)))), "{id}");
        }
    }

    #[test]
    fn bare_models_are_asked_where_they_answer() {
        for (id, endpoint) in [
            ("openai:gpt-5", Endpoint::Chat),
            ("openai:chat:o3-pro", Endpoint::Chat),
            ("openai:o3-pro", Endpoint::Responses),
            ("openai:gpt-5.1-codex", Endpoint::Responses),
            ("openai:gpt-5.6-sol", Endpoint::Responses),
            ("openai:davinci-002", Endpoint::Completion),
            ("openai:gpt-3.5-turbo-instruct", Endpoint::Completion),
            ("openai:text-embedding-3-small", Endpoint::Embedding),
            ("openrouter:o3-pro", Endpoint::Chat),
        ] {
            assert_eq!(model(id).endpoint, endpoint, "{id}");
        }
        let spoken = OpenAi::parse("openai:gpt-realtime-mini", &Object::new());
        assert!(matches!(spoken, Some(Err(CallError::UnsupportedEndpoint { .. }))));
    }

    #[test]
    fn endpoints_have_a_model_of_their_own() {
        let configured = json!({"model": "m"});
        for (id, usual) in [
            ("openai:chat", "gpt-4.1-2025-04-14"),
            ("openai:chat:", "gpt-4.1-2025-04-14"),
            ("openai:responses", "gpt-4.1-2025-04-14"),
            ("openai:completion", "gpt-3.5-turbo-instruct"),
            ("openai:embedding", "text-embedding-3-large"),
            ("openai:embeddings", "text-embedding-3-large"),
            ("openai:moderation", "omni-moderation-latest"),
        ] {
            assert_eq!(model(id).model, usual, "{id}");
            let parsed = OpenAi::parse(id, configured.as_object().unwrap()).unwrap().unwrap();
            assert_eq!(parsed.model, "m", "{id}");
        }
        let named = OpenAi::parse("openai:chat:gpt-4o", configured.as_object().unwrap()).unwrap().unwrap();
        assert_eq!(named.model, "gpt-4o");
    }
}
