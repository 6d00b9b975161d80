//! Providers that are functions or classes of the user's files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::settings;
use crate::calling::spec::ProviderSpec;
use crate::calling::{self, Call, CallError, Provider};
use crate::model::{Object, ProviderResponse};
use crate::reading::files;
use crate::script::{EntryPoint, Language, ScriptCall, Workers};

/// The file of a provider and, maybe, a name in it.
#[derive(Debug)]
pub struct File {
    /// The language of the file.
    pub language: Language,
    /// The path.
    pub path: PathBuf,
    /// The class, object or function in it.
    pub name: Option<String>,
}

/// `file://provider.py`, `file://provider.js`
pub struct Script {
    id: String,
    file: File,
    /// `{id, config, env}`, what a class is made from.
    options: Value,
    /// `{label, delay, transform}`, which the object of a class gets.
    set: Value,
    workers: Arc<Workers>,
}

impl Script {
    /// A provider that `workers` run.
    pub fn new(spec: &ProviderSpec, file: File, options: Value, workers: Arc<Workers>) -> Self {
        let set = json!({"label": spec.label, "delay": spec.delay, "transform": spec.transform});
        Self { id: spec.id.clone(), file, options, set, workers }
    }
}

impl Provider for Script {
    fn id(&self) -> &str {
        &self.id
    }

    fn shown_as(&self) -> BoxFuture<'_, Option<String>> {
        let kind = match self.file.language {
            Language::Python => Some("python"),
            Language::Ruby => Some("ruby"),
            Language::JavaScript => None,
        };
        if let Some(kind) = kind {
            let bare = self.id.strip_prefix(kind).and_then(|rest| rest.strip_prefix(':'));
            let (path, name) = files::split_name(bare.unwrap_or(&self.id));
            let name = format!("{kind}:{path}:{}", name.unwrap_or("default"));
            return std::future::ready(Some(name)).boxed();
        }
        let entry = EntryPoint::Provider {
            path: self.file.path.clone(),
            name: self.file.name.clone(),
            default: "id",
            options: self.options.clone(),
            set: self.set.clone(),
        };
        // A file that cannot be loaded says so in the rows.
        let call = ScriptCall::new(self.file.language, entry, Vec::new());
        async move {
            let id = self.workers.call(call).await.ok()?.value;
            id.as_str().map(str::to_owned).filter(|id| !id.is_empty())
        }
        .boxed()
    }

    fn names_itself(&self) -> bool {
        self.file.language == Language::JavaScript
    }

    fn settled<'a>(&'a self, config: &'a Object) -> BoxFuture<'a, Result<Option<Object>, CallError>> {
        let base = self.options.pointer("/config/basePath").and_then(Value::as_str).unwrap_or_default();
        // JavaScript reads its files itself.
        let loads = self.file.language != Language::JavaScript;
        let loaded = loads.then(|| settings::data(config, Path::new(base))).transpose();
        std::future::ready(loaded.map(Option::flatten)).boxed()
    }

    /// Templates in the configuration belong to the script, which gets the variables as well.
    fn renders_config(&self) -> bool {
        true
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
    /// Returns the name of a method in the file's language.
    fn named(&self, snake_case: &'static str, camel_case: &'static str) -> &'static str {
        if self.file.language == Language::JavaScript { camel_case } else { snake_case }
    }

    /// Calls a method with the prompt and, for moderators, the answer to it.
    fn run<'a>(
        &'a self,
        call: &'a Call<'a>,
        method: &'static str,
        answer: Option<&str>,
    ) -> BoxFuture<'a, ProviderResponse> {
        let mut options = self.options.clone();
        let mut config = call.config.clone();
        config.insert("basePath".to_owned(), self.options["config"]["basePath"].clone());
        options["config"] = Value::Object(config);
        let setting = |key: &str| call.config.get(key);
        let entry = EntryPoint::Provider {
            path: self.file.path.clone(),
            name: self.file.name.clone(),
            default: method,
            // One object serves all rows, whatever the prompts and tests configure.
            options: self.options.clone(),
            set: self.set.clone(),
        };
        let context = || match self.file.language {
            Language::JavaScript => call.context.clone(),
            Language::Python | Language::Ruby => calling::plain(call.context),
        };
        let second = answer.map_or_else(context, |answer| json!(answer));
        let script = ScriptCall {
            time_limit: setting("timeout")
                .and_then(Value::as_f64)
                .map_or(Duration::from_secs(300), |ms| Duration::from_secs_f64(ms / 1000.0)),
            interpreter: setting(match self.file.language {
                Language::Ruby => "rubyExecutable",
                Language::Python | Language::JavaScript => "pythonExecutable",
            })
            .and_then(Value::as_str)
            .map(str::to_owned),
            isolated: setting("isolation").and_then(Value::as_str) == Some("process"),
            ..ScriptCall::new(self.file.language, entry, vec![json!(call.prompt), second, options])
        };
        async move {
            match self.workers.call(script).await {
                Ok(reply) => counted(read(reply.value, self.file.language), self.file.language),
                Err(error) => ProviderResponse::failed(error),
            }
        }
        .boxed()
    }
}

/// Notes what promptfoo notes of answers from files of Python.
fn counted(mut response: ProviderResponse, language: Language) -> ProviderResponse {
    if language == Language::Python {
        // Whatever the function says: it was called.
        response.cached = Some(false);
        if let Some(usage) = &mut response.token_usage {
            usage.num_requests.get_or_insert(1.0);
        }
    }
    response
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
        // An object of nothing is an answer of nothing, which fails.
        Value::Object(map) if language == Language::JavaScript => from_object(map),
        _ => {
            ProviderResponse::failed("the provider must return an object with `output` or `error`".to_owned())
        }
    }
}

/// Reads the answer of a program, which must be an object.
pub fn read_object(value: Value) -> ProviderResponse {
    read(value, Language::Python)
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
