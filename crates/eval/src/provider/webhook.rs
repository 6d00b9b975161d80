//! `webhook:…`: a service of the user's that gets the prompt and answers with an output.

use serde_json::{Value, json};

use super::service::Dialect;
use crate::calling::CallError;
use crate::calling::transport::Request;
use crate::model::{Object, ProviderResponse};
use crate::reading::Env;

/// An address that prompts are posted to.
#[derive(Debug)]
pub struct Webhook {
    id: String,
    url: String,
    /// The configuration of the provider, which the service gets as well.
    config: Object,
}

impl Webhook {
    /// Reads an id like `webhook:https://host/path`, with the configuration of the provider.
    pub fn parse(id: &str, config: &Object) -> Option<Self> {
        let url = id.strip_prefix("webhook:")?.to_owned();
        Some(Self { id: id.to_owned(), url, config: config.clone() })
    }
}

impl Dialect for Webhook {
    fn id(&self) -> &str {
        &self.id
    }

    fn request(&self, prompt: &str, _config: &Object, _env: &Env) -> Result<Request, CallError> {
        let mut body = Object::new();
        body.insert("prompt".to_owned(), json!(prompt));
        if !self.config.is_empty() {
            body.insert("config".to_owned(), Value::Object(self.config.clone()));
        }
        Ok(Request::json(self.url.clone(), &Value::Object(body)))
    }

    fn read(&self, reply: &Value, _config: &Object) -> ProviderResponse {
        match reply.get("output") {
            Some(Value::String(text)) => ProviderResponse::text(text.clone()),
            _ => {
                ProviderResponse::failed(format!("the webhook must answer with a text `output`, not {reply}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_answers_with_an_output() {
        let config = json!({"a": 1});
        let hook = Webhook::parse("webhook:http://host/x", config.as_object().unwrap()).unwrap();
        let request = hook.request("hi", &Object::new(), &Env::default()).unwrap();
        assert_eq!(request.url, "http://host/x");
        let body: Value = serde_json::from_str(&request.body.unwrap()).unwrap();
        assert_eq!(body, json!({"prompt": "hi", "config": {"a": 1}}));
        assert_eq!(hook.read(&json!({"output": "yes"}), &Object::new()).output, Some(json!("yes")));
        assert!(hook.read(&json!({"output": 1}), &Object::new()).error.is_some());
    }
}
