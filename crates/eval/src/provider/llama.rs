//! The server of llama.cpp, in its own dialect.

use serde_json::{Value, json};

use super::service::{self, Dialect};
use crate::calling::CallError;
use crate::calling::transport::Request;
use crate::model::{Object, ProviderResponse};
use crate::reading::Env;

/// Settings that are keys of the request.
const KEYS: &[&str] = &[
    "n_predict",
    "temperature",
    "top_k",
    "top_p",
    "n_keep",
    "stop",
    "repeat_penalty",
    "repeat_last_n",
    "penalize_nl",
    "presence_penalty",
    "frequency_penalty",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "seed",
    "ignore_eos",
    "logit_bias",
];

/// The model that a server was started with.
#[derive(Debug)]
pub struct Llama {
    id: String,
}

impl Llama {
    /// Reads an id: `llama`, or `llama:` with a name for the model.
    pub fn parse(id: &str) -> Option<Self> {
        (id == "llama" || id.starts_with("llama:")).then(|| Self { id: id.to_owned() })
    }
}

impl Dialect for Llama {
    fn id(&self) -> &str {
        &self.id
    }

    fn request(&self, prompt: &str, config: &Object, env: &Env) -> Result<Request, CallError> {
        let base = service::text(config, "apiBaseUrl").or_else(|| env.get("LLAMA_BASE_URL"));
        let base = base.unwrap_or_else(|| "http://localhost:8080".to_owned());
        let mut body = Object::new();
        body.insert("prompt".to_owned(), json!(prompt));
        body.insert("n_predict".to_owned(), json!(512));
        service::take(&mut body, config, KEYS);
        Ok(Request::json(format!("{}/completion", base.trim_end_matches('/')), &Value::Object(body)))
    }

    fn read(&self, reply: &Value, _config: &Object) -> ProviderResponse {
        let Some(Value::String(text)) = reply.get("content") else { return service::no_output(reply) };
        let count = |key: &str| reply.get(key).and_then(Value::as_f64);
        let usage = service::usage(None, count("tokens_evaluated"), count("tokens_predicted"));
        ProviderResponse {
            cached: Some(false),
            token_usage: Some(usage),
            raw: Some(reply.clone()),
            ..ProviderResponse::text(text.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_asked_to_complete() {
        let config = json!({"top_k": 3, "label": "x"});
        let request = Llama::parse("llama:any")
            .unwrap()
            .request("hi", config.as_object().unwrap(), &Env::default())
            .unwrap();
        assert_eq!(request.url, "http://localhost:8080/completion");
        let body: Value = serde_json::from_str(&request.body.unwrap()).unwrap();
        assert_eq!(body, json!({"prompt": "hi", "n_predict": 512, "top_k": 3}));
        let reply = json!({"content": "yes", "tokens_evaluated": 2, "tokens_predicted": 3});
        let response = Llama::parse("llama").unwrap().read(&reply, &Object::new());
        assert_eq!((response.output, response.token_usage.unwrap().total), (Some(json!("yes")), Some(5.0)));
        assert!(Llama::parse("llamaapi:x").is_none());
    }
}
