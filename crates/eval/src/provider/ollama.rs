//! Ollama's own API: chat, completion and embeddings of local models.

use serde_json::{Value, json};

use super::chat;
use super::service::{self, Dialect};
use crate::calling::CallError;
use crate::calling::transport::Request;
use crate::model::{Object, ProviderResponse};
use crate::reading::Env;

/// An endpoint of Ollama.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    /// The path `/api/chat`.
    Chat,
    /// The path `/api/generate`.
    Completion,
    /// The path `/api/embeddings`.
    Embedding,
}

/// A model that Ollama runs.
#[derive(Debug)]
pub struct Ollama {
    id: String,
    endpoint: Endpoint,
    model: String,
}

/// Settings that are keys of the request. All other settings of models are its `options`.
const TOP: &[&str] = &["tools", "format", "keep_alive", "think", "raw", "system", "template", "suffix"];
/// The settings of models.
const OPTIONS: &[&str] = &[
    "num_predict",
    "num_ctx",
    "num_keep",
    "num_batch",
    "num_gpu",
    "num_thread",
    "main_gpu",
    "low_vram",
    "use_mmap",
    "use_mlock",
    "seed",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "tfs_z",
    "repeat_last_n",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "penalize_newline",
    "stop",
];

impl Ollama {
    /// Reads an id like `ollama:chat:llama3.3` or `ollama:llama3.3`, which completes.
    pub fn parse(id: &str) -> Option<Self> {
        let rest = id.strip_prefix("ollama:")?;
        let (kind, model) = rest.split_once(':').unwrap_or(("", rest));
        let (endpoint, model) = match kind {
            "chat" => (Endpoint::Chat, model),
            "completion" => (Endpoint::Completion, model),
            "embedding" | "embeddings" => (Endpoint::Embedding, model),
            // The colon is that of a tag, as in `llama3.3:70b`.
            _ => (Endpoint::Completion, rest),
        };
        (!model.is_empty()).then(|| Self { id: id.to_owned(), endpoint, model: model.to_owned() })
    }

    fn body(&self, prompt: &str, config: &Object) -> Result<Value, CallError> {
        let mut body = Object::new();
        body.insert("model".to_owned(), json!(self.model));
        match self.endpoint {
            Endpoint::Chat => body.insert("messages".to_owned(), Value::Array(chat::messages(prompt)?)),
            Endpoint::Completion | Endpoint::Embedding => body.insert("prompt".to_owned(), json!(prompt)),
        };
        if self.endpoint != Endpoint::Embedding {
            body.insert("stream".to_owned(), json!(false));
            let mut options = Object::new();
            service::take(&mut options, config, OPTIONS);
            body.insert("options".to_owned(), Value::Object(options));
            service::take(&mut body, config, TOP);
        }
        service::lay_over(&mut body, config, "passthrough");
        Ok(Value::Object(body))
    }
}

impl Dialect for Ollama {
    fn id(&self) -> &str {
        &self.id
    }

    fn shown_as(&self) -> Option<String> {
        let kind = match self.endpoint {
            Endpoint::Chat => "chat",
            Endpoint::Completion => "completion",
            Endpoint::Embedding => "embeddings",
        };
        Some(format!("ollama:{kind}:{}", self.model))
    }

    fn request(&self, prompt: &str, config: &Object, env: &Env) -> Result<Request, CallError> {
        let base = service::text(config, "apiBaseUrl").or_else(|| env.get("OLLAMA_BASE_URL"));
        let base = base.unwrap_or_else(|| "http://localhost:11434".to_owned());
        let path = match self.endpoint {
            Endpoint::Chat => "chat",
            Endpoint::Completion => "generate",
            Endpoint::Embedding => "embeddings",
        };
        let url = format!("{}/api/{path}", base.trim_end_matches('/'));
        let request = Request::json(url, &self.body(prompt, config)?);
        Ok(match service::key(config, env, &["OLLAMA_API_KEY"]) {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        })
    }

    fn read(&self, reply: &Value, _config: &Object) -> ProviderResponse {
        read(reply, self.endpoint)
    }
}

fn read(value: &Value, endpoint: Endpoint) -> ProviderResponse {
    let output = match endpoint {
        Endpoint::Chat => said(value),
        Endpoint::Completion => value.get("response").cloned(),
        Endpoint::Embedding => value.get("embedding").cloned(),
    };
    let Some(output) = output else { return service::no_output(value) };
    let count = |key: &str| value.get(key).and_then(Value::as_f64);
    ProviderResponse {
        output: Some(output),
        finish_reason: service::finish_reason(value.get("done_reason")),
        token_usage: Some(service::usage(None, count("prompt_eval_count"), count("eval_count"))),
        ..ProviderResponse::default()
    }
}

/// The answer of a chat: its text, its calls of tools, or both. Arguments are text, as in the OpenAI dialect.
fn said(value: &Value) -> Option<Value> {
    let content = value.pointer("/message/content");
    let calls = value.pointer("/message/tool_calls").and_then(Value::as_array);
    let Some(calls) = calls.filter(|calls| !calls.is_empty()) else { return content.cloned() };
    let calls: Vec<Value> = calls
        .iter()
        .map(|call| {
            let arguments = call.pointer("/function/arguments").map(|arguments| match arguments {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            json!({"function": {"name": call.pointer("/function/name"), "arguments": arguments}})
        })
        .collect();
    let text = content.filter(|content| content.as_str().is_some_and(|text| !text.trim().is_empty()));
    Some(match text {
        Some(text) => json!({"content": text, "tool_calls": calls}),
        None => Value::Array(calls),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: &str, config: &Object) -> Request {
        let env = json!({"OLLAMA_BASE_URL": "http://host:11434/"});
        let env = Env::new(env.as_object().unwrap().clone());
        Ollama::parse(id).unwrap().request("hi", config, &env).unwrap()
    }

    #[test]
    fn requests_are_those_of_ollama() {
        let config =
            json!({"num_predict": 5, "top_k": 2, "keep_alive": "1m", "label": "x", "passthrough": {"a": 1}});
        let config = config.as_object().unwrap();
        let chat = request("ollama:chat:llama3.3:70b", config);
        assert_eq!(chat.url, "http://host:11434/api/chat");
        let expected = json!({
            "model": "llama3.3:70b", "messages": [{"role": "user", "content": "hi"}], "stream": false,
            "options": {"num_predict": 5, "top_k": 2}, "keep_alive": "1m", "a": 1,
        });
        assert_eq!(serde_json::from_str::<Value>(&chat.body.unwrap()).unwrap(), expected);
        let completion = request("ollama:llama3.3:70b", &Object::new());
        assert_eq!(completion.url, "http://host:11434/api/generate");
        let expected = json!({"model": "llama3.3:70b", "prompt": "hi", "stream": false, "options": {}});
        assert_eq!(serde_json::from_str::<Value>(&completion.body.unwrap()).unwrap(), expected);
        let embedding = request("ollama:embeddings:nomic", config);
        assert_eq!(embedding.url, "http://host:11434/api/embeddings");
    }

    #[test]
    fn answers_are_read() {
        let chat = json!({"message": {"content": "yes"}, "done_reason": "STOP", "prompt_eval_count": 3, "eval_count": 4});
        let response = read(&chat, Endpoint::Chat);
        assert_eq!((response.output, response.finish_reason), (Some(json!("yes")), Some("stop".to_owned())));
        assert_eq!(response.token_usage.unwrap().total, Some(7.0));
        let calls = |content: &str| {
            let calls = json!([{"id": "1", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}}]);
            let reply = json!({"message": {"content": content, "tool_calls": calls}});
            read(&reply, Endpoint::Chat).output.unwrap()
        };
        let call = json!([{"function": {"name": "f", "arguments": "{\"a\":1}"}}]);
        assert_eq!(calls(" "), call);
        assert_eq!(calls("hello"), json!({"content": "hello", "tool_calls": call}));
        assert_eq!(read(&json!({"response": "r"}), Endpoint::Completion).output, Some(json!("r")));
        assert_eq!(read(&json!({"embedding": [1]}), Endpoint::Embedding).output, Some(json!([1])));
        assert!(read(&json!({}), Endpoint::Chat).error.is_some());
    }
}
