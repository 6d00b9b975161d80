//! Models that run as deployments of Azure: the OpenAI dialect at an address and with a key of its own.

use serde_json::{Value, json};

use super::openai::{self, Endpoint, replies};
use super::prices::Prices;
use super::service::{self, Dialect};
use super::tools::{ToolCall, ToolOutcome};
use crate::calling::CallError;
use crate::calling::transport::{Request, ServiceReply};
use crate::model::{Guardrails, Object, ProviderResponse, TokenUsage};
use crate::reading::Env;

/// The version of the API, unless one is configured.
const API_VERSION: &str = "2024-12-01-preview";
/// The version of the API for the endpoint `responses`, unless one is configured.
const RESPONSES_API_VERSION: &str = "preview";

/// The variables that hold the host, the address and the key, in their order.
const HOSTS: &[&str] = &["AZURE_API_HOST", "AZURE_OPENAI_API_HOST"];
const ADDRESSES: &[&str] = &["AZURE_API_BASE_URL", "AZURE_OPENAI_API_BASE_URL", "AZURE_OPENAI_BASE_URL"];
const VARIABLES_OF_KEYS: &[&str] = &["AZURE_API_KEY", "AZURE_OPENAI_API_KEY"];

/// A deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct Azure {
    id: String,
    endpoint: Endpoint,
    deployment: String,
}

impl Azure {
    /// Reads an id like `azure:chat:my-deployment`.
    ///
    /// # Errors
    /// [`CallError`] for an endpoint that is not supported, and for an id without a deployment.
    pub fn parse(id: &str) -> Option<Result<Self, CallError>> {
        let rest = id.strip_prefix("azure:").or_else(|| id.strip_prefix("azureopenai:"))?;
        let (kind, deployment) = rest.split_once(':').unwrap_or((rest, ""));
        let endpoint = match Endpoint::named(kind) {
            Some(endpoint) if endpoint != Endpoint::Moderation => endpoint,
            _ => {
                let (id, endpoint) = (id.to_owned(), kind.to_owned());
                return Some(Err(CallError::UnsupportedEndpoint { id, endpoint }));
            }
        };
        let deployment = match (endpoint, deployment) {
            (Endpoint::Embedding, "") => "text-embedding-ada-002",
            (_, "") => return Some(Err(CallError::NoModel(id.to_owned()))),
            (_, named) => named,
        };
        Some(Ok(Self { id: id.to_owned(), endpoint, deployment: deployment.to_owned() }))
    }

    fn url(&self, config: &Object, env: &Env) -> Result<String, CallError> {
        let first =
            |names: &[&str]| names.iter().find_map(|name| env.get(name).filter(|value| !value.is_empty()));
        let host = || {
            let host = service::text(config, "apiHost").or_else(|| first(HOSTS))?;
            let bare = host.trim_start_matches("https://").trim_start_matches("http://");
            Some(format!("https://{bare}"))
        };
        let base = service::text(config, "apiBaseUrl").or_else(|| first(ADDRESSES)).or_else(host);
        let Some(base) = base else {
            return Err(CallError::NoHost { id: self.id.clone(), variable: HOSTS[0] });
        };
        let base = base.trim_end_matches('/');
        let version = service::text(config, "apiVersion");
        Ok(match self.endpoint {
            Endpoint::Responses => {
                let version = version.as_deref().unwrap_or(RESPONSES_API_VERSION);
                format!("{base}/openai/v1/responses?api-version={version}")
            }
            endpoint => {
                let version = version.as_deref().unwrap_or(API_VERSION);
                let searched = endpoint == Endpoint::Chat && config.contains_key("dataSources");
                let path = if searched { "extensions/chat/completions" } else { endpoint.path() };
                format!("{base}/openai/deployments/{}/{path}?api-version={version}", self.deployment)
            }
        })
    }

    fn body(&self, prompt: &str, config: &Object, env: &Env) -> Result<Value, CallError> {
        let mut config = config.clone();
        let thinks = self.thinks(&config);
        if self.endpoint == Endpoint::Chat {
            let defaults = config.get("omitDefaults") != Some(&json!(true));
            for (key, value) in [("top_p", 1), ("presence_penalty", 0), ("frequency_penalty", 0)] {
                if defaults {
                    config.entry(key).or_insert_with(|| json!(value));
                }
            }
            if thinks {
                let limit = config.shift_remove("max_tokens").or_else(|| defaults.then(|| json!(1024)));
                if let Some(limit) = limit {
                    config.entry("max_completion_tokens").or_insert(limit);
                }
                if defaults {
                    config.entry("reasoning_effort").or_insert_with(|| json!("medium"));
                }
            }
        }
        let Value::Object(mut body) =
            openai::body("azure", &self.deployment, self.endpoint, prompt, &config, env)?
        else {
            return Ok(Value::Null);
        };
        if thinks {
            body.shift_remove("temperature");
        }
        if let Some(text) = service::text(&config, "systemPrompt") {
            lead(&mut body, &text);
        }
        service::take(&mut body, &config, &["deployment_id", "dataSources", "data_sources"]);
        Ok(Value::Object(body))
    }

    /// Whether the deployment thinks first, and takes no temperature. Its name may say so.
    fn thinks(&self, config: &Object) -> bool {
        let set = |key: &str| config.get(key) == Some(&json!(true));
        let name = self.deployment.to_lowercase();
        let family = ["o1", "o3", "o4", "gpt-5"]
            .iter()
            .any(|family| name.starts_with(family) || name.contains(&format!("-{family}")));
        set("isReasoningModel")
            || set("o1")
            || family
            || name.contains("deepseek-r1")
            || name.contains("reasoning")
    }
}

/// Makes a text the system message of a chat, in place of its first one.
fn lead(body: &mut Object, text: &str) {
    let Some(Value::Array(messages)) = body.get_mut("messages") else { return };
    let message = json!({"role": "system", "content": text});
    match messages.iter_mut().find(|message| message.get("role") == Some(&json!("system"))) {
        Some(first) => *first = message,
        None => messages.insert(0, message),
    }
}

impl Dialect for Azure {
    fn id(&self) -> &str {
        &self.id
    }

    fn shown_as(&self) -> Option<String> {
        Some(format!("azure:{}", self.deployment))
    }

    fn request(&self, prompt: &str, config: &Object, env: &Env) -> Result<Request, CallError> {
        let url = self.url(config, env)?;
        let Some(key) = service::key(config, env, VARIABLES_OF_KEYS) else {
            return Err(CallError::NoKey { id: self.id.clone(), variable: VARIABLES_OF_KEYS[0] });
        };
        Ok(Request::json(url, &self.body(prompt, config, env)?).header("api-key", key))
    }

    fn read(&self, reply: &Value, config: &Object) -> ProviderResponse {
        let mut response = replies::read(reply, self.endpoint, "azure", config);
        let filtered = response.finish_reason.as_deref() == Some(service::FILTERED);
        response.guardrails = Some(guarded(false, filtered));
        let format = config.get("response_format").and_then(|format| format.get("type"));
        if format == Some(&json!("json_object"))
            && let Some(Value::String(text)) = &response.output
            && let Ok(object) = serde_json::from_str(text)
        {
            response.output = Some(object);
        }
        response
    }

    fn tool(&self, tool: &Value) -> Option<Value> {
        replies::tool(tool, self.endpoint)
    }

    fn calls(&self, reply: &Value) -> Vec<ToolCall> {
        replies::calls(reply, self.endpoint)
    }

    /// Calls that nothing here runs stay beside the others.
    fn resolved(
        &self,
        reply: &Value,
        response: ProviderResponse,
        calls: &[(ToolCall, ToolOutcome)],
    ) -> ProviderResponse {
        if self.endpoint == Endpoint::Responses {
            return replies::resolved(reply, response, calls);
        }
        let said = reply.pointer("/choices/0/message/content").is_some_and(|content| !content.is_null());
        let shown: Vec<Option<String>> =
            calls.iter().map(|(call, outcome)| outcome.shown(&call.name)).collect();
        if said || shown.iter().all(Option::is_none) {
            return response;
        }
        let texts =
            calls.iter().zip(shown).map(|((call, _), text)| text.unwrap_or_else(|| call.raw.to_string()));
        ProviderResponse { output: Some(Value::String(texts.collect::<Vec<_>>().join("\n"))), ..response }
    }

    /// A filter that refuses the prompt has answered.
    fn read_refusal(&self, reply: &ServiceReply) -> Option<ProviderResponse> {
        let field = |key: &str| reply.value.get("error")?.get(key)?.as_str();
        if reply.status != 400 || field("code") != Some(service::FILTERED) {
            return None;
        }
        Some(ProviderResponse {
            finish_reason: Some(service::FILTERED.to_owned()),
            guardrails: Some(guarded(true, false)),
            ..ProviderResponse::text(field("message").unwrap_or_default())
        })
    }

    fn cost(&self, prices: &Prices, config: &Object, usage: &TokenUsage) -> Option<f64> {
        prices.cost("openai", &self.deployment, config, usage)
    }
}

fn guarded(input: bool, output: bool) -> Guardrails {
    Guardrails {
        flagged: Some(input || output),
        flagged_input: Some(input),
        flagged_output: Some(output),
        reason: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn azure(id: &str) -> Azure {
        Azure::parse(id).unwrap().unwrap()
    }

    fn env() -> Env {
        let env = json!({"AZURE_API_HOST": "https://host/", "AZURE_OPENAI_API_KEY": "key"});
        Env::new(env.as_object().unwrap().clone())
    }

    #[test]
    fn requests_are_those_of_azure() {
        let config = json!({"apiVersion": "v", "systemPrompt": "be kind", "max_tokens": 9});
        let request = azure("azure:chat:gpt-4o").request("hi", config.as_object().unwrap(), &env()).unwrap();
        assert_eq!(request.url, "https://host/openai/deployments/gpt-4o/chat/completions?api-version=v");
        assert!(request.headers.contains(&("api-key".to_owned(), "key".to_owned())));
        let expected = json!({
            "model": "gpt-4o", "max_tokens": 9, "temperature": 0, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0,
            "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}],
        });
        assert_eq!(serde_json::from_str::<Value>(&request.body.unwrap()).unwrap(), expected);
        let thinking = azure("azureopenai:chat:my-o3").body("hi", &Object::new(), &env()).unwrap();
        let expected = json!({
            "model": "my-o3", "reasoning_effort": "medium", "max_completion_tokens": 1024, "top_p": 1,
            "presence_penalty": 0, "frequency_penalty": 0, "messages": [{"role": "user", "content": "hi"}],
        });
        assert_eq!(thinking, expected);
        let responses = azure("azure:responses:d").url(&Object::new(), &env()).unwrap();
        assert_eq!(responses, "https://host/openai/v1/responses?api-version=preview");
        let embedding = azure("azure:embedding").url(&Object::new(), &env()).unwrap();
        assert!(embedding.contains("/deployments/text-embedding-ada-002/embeddings?"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let none = Object::new();
        let request = azure("azure:chat:d").request("hi", &none, &Env::default());
        assert!(matches!(request, Err(CallError::NoHost { variable: "AZURE_API_HOST", .. })));
        let host = json!({"apiHost": "host"});
        let request = azure("azure:chat:d").request("hi", host.as_object().unwrap(), &Env::default());
        assert!(matches!(request, Err(CallError::NoKey { variable: "AZURE_API_KEY", .. })));
        assert!(matches!(Azure::parse("azure:chat"), Some(Err(CallError::NoModel(_)))));
        assert!(matches!(Azure::parse("azure:realtime:d"), Some(Err(CallError::UnsupportedEndpoint { .. }))));
        assert_eq!(Azure::parse("openai:x"), None);
        assert_eq!(azure("azureopenai:responses:d").shown_as().as_deref(), Some("azure:d"));
    }
}
