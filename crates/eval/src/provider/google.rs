//! Google's Gemini, at AI Studio and at Vertex AI.

use serde_json::{Value, json};

use super::chat;
use super::prices::Prices;
use super::service::{self, Dialect};
use super::tools::{ToolCall, shape};
use crate::calling::CallError;
use crate::calling::transport::Request;
use crate::model::{Guardrails, Object, ProviderResponse, TokenUsage};
use crate::reading::Env;

/// Names after `google:` and `vertex:` that are other endpoints, and not models.
const UNSUPPORTED: &[&str] = &["image", "live", "video", "chat-bison", "text-bison"];

/// Settings that are keys of `generationConfig`.
const GENERATION: &[&str] = &["temperature", "topP", "topK", "stopSequences", "maxOutputTokens"];

/// Reasons to stop for which Google gives no answer.
const BLOCKED: &[&str] = &["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII"];

/// The place where a model is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Studio,
    Vertex,
}

/// A model of Google's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Google {
    id: String,
    place: Place,
    embeds: bool,
    model: String,
}

impl Google {
    /// Reads an id like `google:gemini-2.5-pro`, `vertex:gemini-2.5-pro` or `google:embedding:gemini-embedding-001`.
    ///
    /// # Errors
    /// [`CallError`] for an endpoint that is not supported, and for an id without a model.
    pub fn parse(id: &str) -> Option<Result<Self, CallError>> {
        let (name, rest) = id.split_once(':')?;
        let place = match name {
            "google" | "palm" => Place::Studio,
            "vertex" => Place::Vertex,
            _ => return None,
        };
        let (kind, model) = rest.split_once(':').unwrap_or(("", rest));
        let other = |endpoint: &str| {
            Some(Err(CallError::UnsupportedEndpoint { id: id.to_owned(), endpoint: endpoint.to_owned() }))
        };
        let embeds = match kind {
            "" | "chat" => false,
            "embedding" | "embeddings" => true,
            kind => return other(kind),
        };
        if UNSUPPORTED.contains(&model)
            || (place == Place::Vertex && (embeds || !model.starts_with("gemini")))
        {
            return other(if embeds { kind } else { model });
        }
        if model.is_empty() {
            return Some(Err(CallError::NoModel(id.to_owned())));
        }
        Some(Ok(Self { id: id.to_owned(), place, embeds, model: model.to_owned() }))
    }

    /// The address of an action of the model, and the header that opens it.
    fn door(&self, config: &Object, env: &Env) -> Result<(String, (&'static str, String)), CallError> {
        let action = if self.embeds { "embedContent" } else { "generateContent" };
        let set = |key: &str, names: &[&str]| {
            service::text(config, key)
                .or_else(|| names.iter().find_map(|name| env.get(name).filter(|value| !value.is_empty())))
        };
        let host = |names: &[&str]| set("apiHost", names).map(|host| format!("https://{host}"));
        match self.place {
            Place::Studio => {
                let Some(key) =
                    service::key(config, env, &["GEMINI_API_KEY", "GOOGLE_API_KEY", "PALM_API_KEY"])
                else {
                    return Err(CallError::NoKey { id: self.id.clone(), variable: "GOOGLE_API_KEY" });
                };
                let base = host(&["GOOGLE_API_HOST", "PALM_API_HOST"])
                    .or_else(|| set("apiBaseUrl", &["GOOGLE_API_BASE_URL"]))
                    .unwrap_or_else(|| "https://generativelanguage.googleapis.com".to_owned());
                let version = service::text(config, "apiVersion").unwrap_or_else(|| "v1beta".to_owned());
                let base = base.trim_end_matches('/');
                Ok((format!("{base}/{version}/models/{}:{action}", self.model), ("x-goog-api-key", key)))
            }
            Place::Vertex => {
                let region = set("region", &["VERTEX_REGION", "GOOGLE_CLOUD_LOCATION"])
                    .unwrap_or_else(|| "us-central1".to_owned());
                let version = service::text(config, "apiVersion").unwrap_or_else(|| "v1".to_owned());
                let model = format!("publishers/google/models/{}:{action}", self.model);
                let base = host(&["VERTEX_API_HOST"]).or_else(|| service::text(config, "apiBaseUrl"));
                let base = base.as_deref().map(|base| base.trim_end_matches('/'));
                if let Some(key) = service::key(config, env, &["VERTEX_API_KEY"]) {
                    let base = base.unwrap_or("https://aiplatform.googleapis.com");
                    return Ok((format!("{base}/{version}/{model}"), ("x-goog-api-key", key)));
                }
                let project =
                    set("projectId", &["VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT", "GOOGLE_PROJECT_ID"]);
                let token = set("accessToken", &["GOOGLE_OAUTH_ACCESS_TOKEN"]);
                let (Some(project), Some(token)) = (project, token) else {
                    return Err(CallError::NoGoogleToken(self.id.clone()));
                };
                let own = match region.as_str() {
                    "global" => "https://aiplatform.googleapis.com".to_owned(),
                    region => format!("https://{region}-aiplatform.googleapis.com"),
                };
                let base = base.unwrap_or(&own);
                let url = format!("{base}/{version}/projects/{project}/locations/{region}/{model}");
                Ok((url, ("authorization", format!("Bearer {token}"))))
            }
        }
    }
}

impl Dialect for Google {
    fn id(&self) -> &str {
        &self.id
    }

    fn shown_as(&self) -> Option<String> {
        let name = if self.place == Place::Vertex { "vertex" } else { "google" };
        let kind = if self.embeds { "embedding:" } else { "" };
        Some(format!("{name}:{kind}{}", self.model))
    }

    fn request(&self, prompt: &str, config: &Object, env: &Env) -> Result<Request, CallError> {
        let (url, (header, value)) = self.door(config, env)?;
        let body = if self.embeds { embedding(prompt, config) } else { body(prompt, config)? };
        Ok(Request::json(url, &body).header(header, value))
    }

    fn read(&self, reply: &Value, _config: &Object) -> ProviderResponse {
        if self.embeds {
            return match reply.pointer("/embedding/values") {
                Some(vector) => {
                    ProviderResponse { output: Some(vector.clone()), ..ProviderResponse::default() }
                }
                None => service::no_output(reply),
            };
        }
        read(reply)
    }

    fn tool(&self, tool: &Value) -> Option<Value> {
        (!self.embeds).then(|| shape::gemini(tool))
    }

    /// As promptfoo: tests of Gemini are about the calls.
    fn runs_servers(&self) -> bool {
        false
    }

    fn calls(&self, reply: &Value) -> Vec<ToolCall> {
        let parts =
            reply.pointer("/candidates/0/content/parts").and_then(Value::as_array).into_iter().flatten();
        let calls = parts.filter_map(|part| {
            let call = part.get("functionCall")?;
            let arguments = call.get("args").cloned().unwrap_or_default();
            Some(ToolCall { name: call.get("name")?.as_str()?.to_owned(), arguments, raw: part.clone() })
        });
        calls.collect()
    }

    fn cost(&self, prices: &Prices, config: &Object, usage: &TokenUsage) -> Option<f64> {
        prices.cost("google", &self.model, config, usage)
    }
}

fn embedding(text: &str, config: &Object) -> Value {
    let mut body = Object::new();
    body.insert("content".to_owned(), json!({"parts": [{"text": text}]}));
    service::take(&mut body, config, &["taskType", "outputDimensionality", "title"]);
    Value::Object(body)
}

/// Returns the parts of a message: a text is one.
fn parts(content: Value) -> Value {
    match content {
        Value::Array(items) => items
            .into_iter()
            .map(|item| match item {
                Value::String(text) => json!({"text": text}),
                item if item.get("type") == Some(&json!("text")) => json!({"text": item["text"]}),
                item => item,
            })
            .collect(),
        Value::String(text) => json!([{"text": text}]),
        other => json!([other]),
    }
}

/// Returns the body of a request: messages of the system go before the conversation.
fn body(prompt: &str, config: &Object) -> Result<Value, CallError> {
    let (mut system, mut contents) = (Vec::new(), Vec::new());
    if let Some(instruction) = config.get("systemInstruction").filter(|instruction| !instruction.is_null()) {
        let own = instruction.get("parts").cloned().unwrap_or_else(|| parts(instruction.clone()));
        system.extend(own.as_array().cloned().unwrap_or_default());
    }
    let own = serde_json::from_str::<Value>(prompt).ok().filter(|own| own.get("contents").is_some());
    let messages = match &own {
        Some(own) => {
            let instruction = own.pointer("/system_instruction/parts").and_then(Value::as_array);
            system.extend(instruction.cloned().unwrap_or_default());
            own["contents"].as_array().cloned().unwrap_or_default()
        }
        None => chat::messages(prompt)?,
    };
    for mut message in messages {
        let role = message.get("role").and_then(Value::as_str).unwrap_or("user").to_owned();
        let parts = match message.get_mut("parts").map(Value::take) {
            Some(own) => own,
            None => parts(message.get_mut("content").map(Value::take).unwrap_or_default()),
        };
        match role.as_str() {
            "system" => system.extend(parts.as_array().cloned().unwrap_or_default()),
            "assistant" => contents.push(json!({"role": "model", "parts": parts})),
            role => contents.push(json!({"role": role, "parts": parts})),
        }
    }
    let mut generation = Object::new();
    service::take(&mut generation, config, GENERATION);
    service::lay_over(&mut generation, config, "generationConfig");
    if let Some(schema) = config.get("responseSchema") {
        generation.insert("response_schema".to_owned(), schema.clone());
        generation.insert("response_mime_type".to_owned(), json!("application/json"));
    }
    let mut body = Object::new();
    body.insert("contents".to_owned(), Value::Array(contents));
    body.insert("generationConfig".to_owned(), Value::Object(generation));
    service::take(&mut body, config, &["safetySettings", "toolConfig", "tools"]);
    if !system.is_empty() {
        body.insert("system_instruction".to_owned(), json!({"parts": system}));
    }
    service::lay_over(&mut body, config, "passthrough");
    Ok(Value::Object(body))
}

fn read(reply: &Value) -> ProviderResponse {
    let count = |key: &str| reply.pointer(&format!("/usageMetadata/{key}")).and_then(Value::as_f64);
    let thoughts = count("thoughtsTokenCount").unwrap_or(0.0);
    let usage = TokenUsage {
        total: count("totalTokenCount"),
        ..service::usage(None, count("promptTokenCount"), count("candidatesTokenCount").map(|n| n + thoughts))
    };
    let failed = |reason: String| ProviderResponse {
        token_usage: Some(usage.clone()),
        ..ProviderResponse::failed(reason)
    };
    let Some(candidate) = reply.pointer("/candidates/0") else {
        let blocked = reply.pointer("/promptFeedback/blockReason").and_then(Value::as_str);
        return failed(match blocked {
            Some(reason) => format!("Response blocked: {reason}"),
            None => format!("no candidates in the answer: {reply}"),
        });
    };
    let reason = candidate.get("finishReason").and_then(Value::as_str);
    if let Some(reason) = reason.filter(|reason| BLOCKED.contains(reason)) {
        return failed(format!("Response was blocked with finish reason: {reason}"));
    }
    let Some(parts) = candidate.pointer("/content/parts").and_then(Value::as_array) else {
        return failed(format!("the answer has no output: {candidate}"));
    };
    let texts: Option<String> = parts.iter().map(|part| part.get("text")?.as_str()).collect();
    let flagged = |pointer: &Value| -> Option<bool> {
        let ratings = pointer.get("safetyRatings")?.as_array()?;
        Some(ratings.iter().any(|rating| rating.get("probability") != Some(&json!("NEGLIGIBLE"))))
    };
    let (input, output) = (reply.get("promptFeedback").and_then(flagged), flagged(candidate));
    let rated = input.is_some() || output.is_some();
    ProviderResponse {
        output: Some(texts.map_or_else(|| json!(parts), Value::String)),
        cached: Some(false),
        guardrails: rated.then(|| Guardrails {
            flagged: Some(input == Some(true) || output == Some(true)),
            flagged_input: input,
            flagged_output: output,
            ..Guardrails::default()
        }),
        token_usage: Some(usage),
        raw: Some(reply.clone()),
        metadata: Some(Object::new()),
        ..ProviderResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(id: &str) -> Google {
        Google::parse(id).unwrap().unwrap()
    }

    fn env(pairs: Value) -> Env {
        Env::new(pairs.as_object().unwrap().clone())
    }

    #[test]
    fn requests_are_those_of_gemini() {
        let prompt = r#"[{"role":"system","content":"be kind"},{"role":"user","content":"hi"},{"role":"assistant","content":"yes"}]"#;
        let config = json!({"temperature": 0.5, "generationConfig": {"topK": 3}, "responseSchema": {"type": "object"}});
        let expected = json!({
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"text": "yes"}]}],
            "generationConfig": {
                "temperature": 0.5, "topK": 3, "response_schema": {"type": "object"}, "response_mime_type": "application/json",
            },
            "system_instruction": {"parts": [{"text": "be kind"}]},
        });
        assert_eq!(body(prompt, config.as_object().unwrap()).unwrap(), expected);
    }

    #[test]
    fn vertex_takes_a_key_or_a_token() {
        let keyed = env(json!({"VERTEX_API_KEY": "k"}));
        let (url, header) = model("vertex:gemini-2.5-pro").door(&Object::new(), &keyed).unwrap();
        assert_eq!(
            url,
            "https://aiplatform.googleapis.com/v1/publishers/google/models/gemini-2.5-pro:generateContent"
        );
        assert_eq!(header, ("x-goog-api-key", "k".to_owned()));
        let token =
            env(json!({"GOOGLE_OAUTH_ACCESS_TOKEN": "t", "GOOGLE_CLOUD_PROJECT": "p", "VERTEX_REGION": "r"}));
        let (url, header) = model("vertex:gemini-2.5-pro").door(&Object::new(), &token).unwrap();
        assert!(
            url.starts_with(
                "https://r-aiplatform.googleapis.com/v1/projects/p/locations/r/publishers/google/"
            )
        );
        assert_eq!(header, ("authorization", "Bearer t".to_owned()));
        assert!(model("vertex:gemini-2.5-pro").door(&Object::new(), &Env::default()).is_err());
    }

    #[test]
    fn what_is_blocked_is_an_error() {
        let blocked = json!({"candidates": [{"finishReason": "SAFETY"}]});
        assert_eq!(read(&blocked).error.unwrap(), "Response was blocked with finish reason: SAFETY");
        let refused = json!({"promptFeedback": {"blockReason": "OTHER"}});
        assert_eq!(read(&refused).error.unwrap(), "Response blocked: OTHER");
        let call = json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": "f"}}]}}]});
        assert_eq!(read(&call).output, Some(json!([{"functionCall": {"name": "f"}}])));
    }

    #[test]
    fn other_endpoints_are_refused() {
        for id in [
            "google:image:imagen-4",
            "google:live:gemini-live",
            "vertex:claude-3-5-sonnet",
            "vertex:embedding:x",
        ] {
            assert!(matches!(Google::parse(id), Some(Err(CallError::UnsupportedEndpoint { .. }))), "{id}");
        }
        assert!(matches!(Google::parse("google:"), Some(Err(CallError::NoModel(_)))));
        assert!(Google::parse("gemini:x").is_none());
    }
}
