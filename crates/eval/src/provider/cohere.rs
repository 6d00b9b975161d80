//! Cohere's chat.

use serde_json::{Value, json};

use super::prices::Prices;
use super::service::{self, Dialect};
use crate::calling::CallError;
use crate::calling::transport::Request;
use crate::model::{Object, ProviderResponse, TokenUsage};
use crate::reading::Env;

/// Settings that say how to ask, and are no keys of the request.
const OWN: &[&str] = &[
    "apiBaseUrl",
    "apiKey",
    "apiKeyEnvar",
    "headers",
    "basePath",
    "showSearchQueries",
    "showDocuments",
    "cost",
    "inputCost",
    "outputCost",
];

/// A model of Cohere's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cohere {
    id: String,
    model: String,
}

impl Cohere {
    /// Reads an id like `cohere:command-r`.
    ///
    /// # Errors
    /// [`CallError`] for an endpoint that is not supported, and for an id without a model.
    pub fn parse(id: &str) -> Option<Result<Self, CallError>> {
        let model = id.strip_prefix("cohere:")?;
        Some(match model.split_once(':') {
            Some((endpoint, _)) => {
                Err(CallError::UnsupportedEndpoint { id: id.to_owned(), endpoint: endpoint.to_owned() })
            }
            None if model.is_empty() => Err(CallError::NoModel(id.to_owned())),
            None => Ok(Self { id: id.to_owned(), model: model.to_owned() }),
        })
    }
}

impl Dialect for Cohere {
    fn id(&self) -> &str {
        &self.id
    }

    fn request(&self, prompt: &str, config: &Object, env: &Env) -> Result<Request, CallError> {
        let Some(key) = service::key(config, env, &["COHERE_API_KEY"]) else {
            return Err(CallError::NoKey { id: self.id.clone(), variable: "COHERE_API_KEY" });
        };
        let defaults = json!({
            "chatHistory": [], "connectors": [], "prompt_truncation": "OFF", "search_queries_only": false, "documents": [],
            "temperature": 0.3, "k": 0, "p": 0.75, "frequency_penalty": 0, "presence_penalty": 0,
        });
        let mut body = Object::new();
        body.insert("message".to_owned(), json!(prompt));
        body.extend(defaults.as_object().cloned().unwrap_or_default());
        let own = config.iter().filter(|(key, _)| !OWN.contains(&key.as_str()));
        body.extend(own.map(|(key, value)| (key.clone(), value.clone())));
        // A prompt that is an object has keys of the request.
        if let Ok(Value::Object(own)) = serde_json::from_str(prompt) {
            body.shift_remove("message");
            body.extend(own);
        }
        body.insert("model".to_owned(), json!(self.model));
        let base =
            service::text(config, "apiBaseUrl").unwrap_or_else(|| "https://api.cohere.ai/v1".to_owned());
        let url = format!("{}/chat", base.trim_end_matches('/'));
        Ok(Request::json(url, &Value::Object(body)).header("authorization", format!("Bearer {key}")))
    }

    fn read(&self, reply: &Value, _config: &Object) -> ProviderResponse {
        let Some(text) = reply.get("text").and_then(Value::as_str) else { return service::no_output(reply) };
        let count = |key: &str| reply.pointer(&format!("/meta/billed_units/{key}")).and_then(Value::as_f64);
        ProviderResponse {
            token_usage: Some(service::usage(None, count("input_tokens"), count("output_tokens"))),
            ..ProviderResponse::text(text)
        }
    }

    fn cost(&self, prices: &Prices, config: &Object, usage: &TokenUsage) -> Option<f64> {
        prices.cost("cohere", &self.model, config, usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_a_message_or_the_request() {
        let model = Cohere::parse("cohere:command-r").unwrap().unwrap();
        let config = json!({"apiKey": "k", "temperature": 0});
        let body = |prompt: &str| {
            let request = model.request(prompt, config.as_object().unwrap(), &Env::default()).unwrap();
            serde_json::from_str::<Value>(&request.body.unwrap()).unwrap()
        };
        let plain = body("hi");
        assert_eq!(
            (&plain["message"], &plain["temperature"], &plain["model"]),
            (&json!("hi"), &json!(0), &json!("command-r"))
        );
        let own = body(r#"{"message": "m", "preamble": "p"}"#);
        assert_eq!((&own["message"], &own["preamble"]), (&json!("m"), &json!("p")));
        assert!(plain.get("apiKey").is_none());
    }
}
