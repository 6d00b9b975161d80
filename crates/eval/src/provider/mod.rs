//! Providers: the families of what a prompt can be sent to.

mod anthropic;
mod azure;
mod bedrock;
mod chat;
mod cohere;
mod echo;
mod exec;
mod golang;
mod google;
pub(crate) mod http;
mod huggingface;
mod llama;
mod mcp;
mod ollama;
mod openai;
mod prices;
mod script;
mod service;
pub mod settings;
mod tools;
pub mod unsupported;
mod webhook;
mod websocket;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use serde_json::json;

use crate::calling::spec::{ProviderSpec, Turns};
use crate::calling::{CallError, Provider, ProviderFactory};
use crate::code::{RepairProvider, SandboxProvider};
use crate::reading::files;
use crate::redteam::{GateProvider, WallProvider};
use crate::sandboxes::Sandboxes;
use crate::script::{Language, Workers};
use prices::Prices;
use service::{Dialect, Service};
use settings::Settings;
use tools::Tools;

/// The families of providers.
#[derive(Debug, Clone, PartialEq)]
pub enum Family {
    /// The provider `echo`.
    Echo,
    /// A check of code that is attacked: a file of Python with `get_assert` and no `call_api`.
    Gate(PathBuf),
    /// `redteam:wall`, which attacks a sandbox.
    Wall,
    /// `sandbox`, with a language or without.
    Sandbox(Option<&'static str>),
    /// `patch`, which has a model repair a repository.
    Repair,
    /// `exec:…`, with the command.
    Exec(String),
    /// A service of the OpenAI dialect.
    OpenAi(openai::OpenAi),
    /// A deployment of Azure's.
    Azure(azure::Azure),
    /// A model of Google's.
    Google(google::Google),
    /// A model of Amazon Bedrock.
    Bedrock(bedrock::Bedrock),
    /// A model of Cohere's.
    Cohere(cohere::Cohere),
    /// A model of Hugging Face's.
    HuggingFace(huggingface::HuggingFace),
    /// Anthropic's messages.
    Anthropic,
    /// A model that Ollama runs.
    Ollama,
    /// A model that a server of llama.cpp runs.
    Llama,
    /// `webhook:…`, which posts the prompt to a service of the user's.
    Webhook,
    /// A provider that asks the one of the row several times.
    Turns(Turns),
    /// Any HTTP service.
    Http,
    /// Any service that is asked over a websocket.
    WebSocket,
    /// Tools of servers of the Model Context Protocol.
    Mcp,
    /// A file of Go.
    Golang(PathBuf),
    /// A file with code.
    Script(Language, PathBuf, Option<String>),
}

impl Family {
    /// Whether `file://` values of the configuration stand for what the files hold. The other families read files themselves.
    pub fn takes_data(&self) -> bool {
        matches!(
            self,
            Self::OpenAi(_)
                | Self::Azure(_)
                | Self::Google(_)
                | Self::Bedrock(_)
                | Self::Cohere(_)
                | Self::HuggingFace(_)
                | Self::Anthropic
                | Self::Ollama
                | Self::Llama
                | Self::Webhook
                | Self::Http
                | Self::WebSocket
                | Self::Mcp
                | Self::Turns(_)
                | Self::Script(Language::Python | Language::Ruby, _, _)
        )
    }
}

/// Providers that are programs, and the files of the example `adapters` that start them.
const ADAPTERS: [(&str, &str); 4] = [
    ("browser", "browser.mjs"),
    ("anthropic:claude-agent-sdk", "claude_agent.mjs"),
    ("anthropic:claude-code", "claude_agent.mjs"),
    ("openai:codex-sdk", "codex.mjs"),
];

/// Returns the family that an id belongs to.
///
/// # Errors
/// When it belongs to none, with what to do.
pub fn family_of(spec: &ProviderSpec) -> Result<Family, CallError> {
    let id = spec.id.as_str();
    let script = |language, reference: &str| {
        let (path, name) = files::split_name(reference);
        let path = spec.base.join(path);
        if path.is_file() {
            let is_check = language == Language::Python
                && name.is_none_or(|name| name == "get_assert")
                && std::fs::read_to_string(&path).is_ok_and(|text| GateProvider::is_check(&text));
            match is_check {
                true => Ok(Family::Gate(path)),
                false => Ok(Family::Script(language, path, name.map(str::to_owned))),
            }
        } else {
            Err(CallError::FileNotFound(path))
        }
    };
    if id == "echo" {
        return Ok(Family::Echo);
    }
    if let Some(language) = SandboxProvider::language_of(id)? {
        return Ok(Family::Sandbox(language));
    }
    if id == WallProvider::ID {
        return Ok(Family::Wall);
    }
    if id == RepairProvider::ID {
        return Ok(Family::Repair);
    }
    if let Some(command) = id.strip_prefix("exec:") {
        return Ok(Family::Exec(command.trim().to_owned()));
    }
    if let Some(turns) = Turns::of(id) {
        return Ok(Family::Turns(turns));
    }
    for (prefix, language) in [("python:", Language::Python), ("ruby:", Language::Ruby)] {
        if let Some(reference) = id.strip_prefix(prefix) {
            return script(language, reference);
        }
    }
    if let Some(reference) = id.strip_prefix("golang:") {
        return golang(spec, reference);
    }
    let extension = files::extension(id);
    if id.starts_with("file://")
        || ((extension == "py" || files::is_javascript(&extension)) && !id.contains("://"))
    {
        return match extension.as_str() {
            "py" => script(Language::Python, id),
            "rb" => script(Language::Ruby, id),
            "go" => golang(spec, id),
            extension if files::is_javascript(extension) => script(Language::JavaScript, id),
            _ => Err(CallError::NotAProviderFile(id.to_owned())),
        };
    }
    let is = |name: &str| id.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
    if let Some((_, file)) = ADAPTERS.iter().find(|(name, _)| is(name)) {
        return Err(CallError::Adapted { id: id.to_owned(), file });
    }
    if let Some(found) = openai::OpenAi::parse(id, &spec.config) {
        return found.map(Family::OpenAi);
    }
    if let Some(found) = azure::Azure::parse(id) {
        return found.map(Family::Azure);
    }
    if let Some(found) = google::Google::parse(id) {
        return found.map(Family::Google);
    }
    if let Some(found) = bedrock::Bedrock::parse(id) {
        return found.map(Family::Bedrock);
    }
    if let Some(found) = cohere::Cohere::parse(id) {
        return found.map(Family::Cohere);
    }
    if let Some(found) = huggingface::HuggingFace::parse(id) {
        return found.map(Family::HuggingFace);
    }
    if id == "llama" || id.starts_with("llama:") {
        return Ok(Family::Llama);
    }
    if id.strip_prefix("webhook:").is_some_and(|url| url.contains("://")) {
        return Ok(Family::Webhook);
    }
    if id.starts_with("anthropic:") {
        return match anthropic::unsupported(id) {
            Some(endpoint) => Err(CallError::UnsupportedEndpoint { id: id.to_owned(), endpoint }),
            None => Ok(Family::Anthropic),
        };
    }
    if id.starts_with("ollama:") {
        return Ok(Family::Ollama);
    }
    if id == "mcp" || id.starts_with("mcp:") {
        return Ok(Family::Mcp);
    }
    if websocket::WebSocket::is_meant(id) {
        return Ok(Family::WebSocket);
    }
    if matches!(id, "http" | "https") || id.starts_with("http://") || id.starts_with("https://") {
        let described =
            spec.config.contains_key("url") || spec.config.contains_key("request") || id.contains("://");
        return match described {
            true => Ok(Family::Http),
            false => Err(CallError::NoAddress),
        };
    }
    Err(CallError::UnknownProvider(id.to_owned()))
}

/// Returns the family of a file of Go, whose function has one name only.
fn golang(spec: &ProviderSpec, reference: &str) -> Result<Family, CallError> {
    let (path, name) = files::split_name(reference);
    let path = spec.base.join(path);
    match name {
        _ if !path.is_file() => Err(CallError::FileNotFound(path)),
        None | Some("CallApi" | "call_api") => Ok(Family::Golang(path)),
        Some(_) => Err(CallError::NotCallApi(spec.id.clone())),
    }
}

/// Makes providers of all families, with the parts of a suite that they use.
#[derive(Debug, Clone)]
pub struct Factory {
    workers: Arc<Workers>,
    sandboxes: Arc<Sandboxes>,
    /// Read for the first model of a service.
    prices: Arc<OnceLock<Result<Arc<Prices>, CallError>>>,
}

impl Factory {
    /// Providers that run user code in `workers`, and code of models in `sandboxes`.
    pub fn new(workers: Arc<Workers>, sandboxes: Arc<Sandboxes>) -> Self {
        Self { workers, sandboxes, prices: Arc::default() }
    }
}

impl Factory {
    /// Returns the prices that the user sets beside the known ones.
    fn prices(&self) -> Result<Arc<Prices>, CallError> {
        let read = || {
            let Some(path) = self.workers.env().get(prices::VARIABLE).filter(|path| !path.is_empty()) else {
                return Ok(Arc::default());
            };
            let file = self.workers.base().join(&path);
            let read = Prices::read(&file).map(Arc::new);
            read.map_err(|error| CallError::Prices { path, reason: error.to_string() })
        };
        self.prices.get_or_init(read).clone()
    }
}

impl Factory {
    /// Makes a model of a service.
    fn service<D: Dialect + 'static>(
        &self,
        dialect: D,
        spec: &ProviderSpec,
    ) -> Result<Box<dyn Provider>, CallError> {
        let env = self.workers.env().with(&spec.env);
        let settings = Settings::new(Arc::clone(&self.workers), &spec.base);
        let tools = Tools::new(Arc::clone(&self.workers));
        Ok(Box::new(Service::new(dialect, env, self.prices()?, settings, tools)))
    }
}

impl ProviderFactory for Factory {
    fn make(&self, spec: &ProviderSpec) -> Result<Box<dyn Provider>, CallError> {
        let mut config = spec.config.clone();
        config.insert("basePath".to_owned(), json!(spec.base));
        // As promptfoo has it: an id that is a text of the configuration is in the options of JavaScript only.
        let id = spec.raw.is_object().then(|| spec.id.clone());
        let options = json!({"id": id, "config": config, "env": spec.env});
        let env = || self.workers.env().with(&spec.env);
        let no_model = || CallError::NoModel(spec.id.clone());
        Ok(match family_of(spec)? {
            Family::Echo => Box::new(echo::Echo),
            Family::Gate(path) => {
                Box::new(GateProvider::new(&spec.id, path, spec.config.clone(), Arc::clone(&self.workers)))
            }
            Family::Wall => Box::new(WallProvider::new(Arc::clone(&self.sandboxes))),
            Family::Sandbox(language) => {
                Box::new(SandboxProvider::new(&spec.id, language, Arc::clone(&self.sandboxes)))
            }
            Family::Repair => {
                let base = self.workers.base().to_owned();
                Box::new(RepairProvider::new(base, Arc::clone(&self.sandboxes), Box::new(self.clone())))
            }
            Family::Exec(command) => {
                Box::new(exec::Exec::new(&spec.id, &command, spec.base.clone(), env(), options))
            }
            Family::OpenAi(model) => self.service(model, spec)?,
            Family::Azure(deployment) => self.service(deployment, spec)?,
            Family::Google(model) => self.service(model, spec)?,
            Family::Bedrock(model) => self.service(model, spec)?,
            Family::Cohere(model) => self.service(model, spec)?,
            Family::HuggingFace(model) => self.service(model, spec)?,
            Family::Anthropic => {
                self.service(anthropic::Anthropic::parse(&spec.id).ok_or_else(no_model)?, spec)?
            }
            Family::Ollama => self.service(ollama::Ollama::parse(&spec.id).ok_or_else(no_model)?, spec)?,
            Family::Llama => self.service(llama::Llama::parse(&spec.id).ok_or_else(no_model)?, spec)?,
            Family::Webhook => {
                let hook = webhook::Webhook::parse(&spec.id, &spec.config).ok_or_else(no_model)?;
                self.service(hook, spec)?
            }
            Family::Turns(_) => return Err(CallError::OnlyOfTests(spec.id.clone())),
            Family::Http => Box::new(http::Http::new(spec, Arc::clone(&self.workers))),
            Family::Mcp => Box::new(mcp::Mcp::new(spec, Arc::clone(&self.workers))),
            Family::WebSocket => Box::new(websocket::WebSocket::new(spec, Arc::clone(&self.workers))),
            Family::Golang(path) => Box::new(golang::Golang::new(&spec.id, path, env(), options)),
            Family::Script(language, path, name) => {
                let mut options = options;
                options["env"] = json!(self.workers.env().with(&spec.env).own());
                if language == Language::JavaScript {
                    options["id"] = json!(spec.id);
                }
                let file = script::File { language, path, name };
                Box::new(script::Script::new(spec, file, options, Arc::clone(&self.workers)))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn ids_belong_to_families() {
        let of = |id: &str| family_of(&ProviderSpec::new(id, Path::new("/")));
        assert_eq!(of("echo"), Ok(Family::Echo));
        assert_eq!(of("exec:cat x"), Ok(Family::Exec("cat x".to_owned())));
        assert!(matches!(of("openai:chat:gpt-4o"), Ok(Family::OpenAi(_))));
        assert_eq!(of("ollama:llama3"), Ok(Family::Ollama));
        assert_eq!(of("anthropic:messages:m"), Ok(Family::Anthropic));
        assert_eq!(of("https://host/path"), Ok(Family::Http));
        assert_eq!(of("wss://host/path"), Ok(Family::WebSocket));
        assert_eq!(of("mcp"), Ok(Family::Mcp));
        assert!(matches!(of("azure:chat:d"), Ok(Family::Azure(_))));
        assert_eq!(of("llama:m"), Ok(Family::Llama));
        assert_eq!(of("webhook:http://host/path"), Ok(Family::Webhook));
        assert!(of("webhook:nowhere").is_err());
        assert_eq!(of("sequence"), Ok(Family::Turns(Turns::Sequence)));
        assert!(of("http").is_err());
        for id in [
            "openai:image:x",
            "xai:image:grok-2-image",
            "hyperbolic:audio:melo",
            "openai:agents:file://a.ts",
            "openai:chatkit:wf_1",
            "anthropic:completion:claude-2.1",
        ] {
            assert!(matches!(of(id), Err(CallError::UnsupportedEndpoint { .. })), "{id}");
        }
        for id in ["browser", "openai:codex-sdk", "openai:codex-sdk:m", "anthropic:claude-agent-sdk"] {
            assert!(matches!(of(id), Err(CallError::Adapted { .. })), "{id}");
        }
        assert!(of("nobody:x").is_err());
        assert!(of("file://missing.py").is_err());
    }
}
