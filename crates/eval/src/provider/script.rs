//! Providers that are functions or classes of the user's files.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{Call, Provider};
use crate::model::{Object, ProviderResponse};
use crate::worker::{Entry, Language, ScriptCall};

/// `file://provider.py`, `file://provider.js`
pub struct Script {
    id: String,
    language: Language,
    path: PathBuf,
    name: Option<String>,
    /// `{id, config, env}`, what a class is made from.
    options: Value,
}

impl Script {
    /// Of a file and, maybe, a name in it.
    pub fn new(id: &str, language: Language, path: PathBuf, name: Option<String>, options: Value) -> Self {
        Self { id: id.to_owned(), language, path, name, options }
    }
}

impl Provider for Script {
    fn id(&self) -> &str {
        &self.id
    }

    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        self.run(call, self.named("call_api", "callApi"), None)
    }

    fn embed<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        self.run(call, self.named("call_embedding_api", "callEmbeddingApi"), None)
    }

    fn classify<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        self.run(call, self.named("call_classification_api", "callClassificationApi"), None)
    }

    fn moderate<'a>(&'a self, call: &'a Call<'a>, answer: &'a str) -> BoxFuture<'a, ProviderResponse> {
        self.run(call, self.named("call_moderation_api", "callModerationApi"), Some(answer))
    }
}

impl Script {
    /// What a method of providers is called in the file's language.
    fn named(&self, python: &'static str, javascript: &'static str) -> &'static str {
        if self.language == Language::Python { python } else { javascript }
    }

    /// Calls a method with the prompt and, for moderators, the answer to it.
    fn run<'a>(
        &'a self,
        call: &'a Call<'a>,
        method: &'static str,
        answer: Option<&str>,
    ) -> BoxFuture<'a, ProviderResponse> {
        let mut options = self.options.clone();
        options["config"] = Value::Object(call.config.clone());
        let setting = |key: &str| call.config.get(key);
        let script = ScriptCall {
            language: self.language,
            entry: Entry::Provider {
                path: self.path.clone(),
                name: self.name.clone(),
                default: method,
                options: options.clone(),
            },
            arguments: match answer {
                Some(answer) => vec![json!(call.prompt), json!(answer), options],
                None => vec![json!(call.prompt), call.context.clone(), options],
            },
            time_limit: setting("timeout")
                .and_then(Value::as_f64)
                .map_or(Duration::from_secs(300), |ms| Duration::from_secs_f64(ms / 1000.0)),
            interpreter: setting("pythonExecutable").and_then(Value::as_str).map(str::to_owned),
            isolated: setting("isolation").and_then(Value::as_str) == Some("process"),
        };
        async move {
            match call.services.workers.call(script).await {
                Ok(reply) => read(reply.value, self.language),
                Err(error) => ProviderResponse::failed(error.to_string()),
            }
        }
        .boxed()
    }
}

/// Keys of what the methods of providers give.
const OUTPUTS: &[&str] = &["embedding", "classification", "flags"];

fn read(value: Value, language: Language) -> ProviderResponse {
    match value {
        Value::Object(mut map)
            if OUTPUTS.iter().chain(&["output", "error"]).any(|key| map.contains_key(*key)) =>
        {
            for key in OUTPUTS {
                if let Some(output) = map.shift_remove(*key) {
                    map.entry("output").or_insert(output);
                }
            }
            from_object(map)
        }
        Value::String(text) if language == Language::JavaScript => ProviderResponse::text(text),
        _ => {
            ProviderResponse::failed("the provider must return an object with `output` or `error`".to_owned())
        }
    }
}

fn from_object(mut map: Object) -> ProviderResponse {
    // An error may be any value; a null one is none.
    match map.get("error") {
        Some(Value::Null) => drop(map.shift_remove("error")),
        Some(Value::String(_)) | None => {}
        Some(other) => drop(map.insert("error".to_owned(), json!(other.to_string()))),
    }
    serde_json::from_value(Value::Object(map)).unwrap_or_else(|error| {
        ProviderResponse::failed(format!("the provider's answer has a key of the wrong type: {error}"))
    })
}
