//! Providers: the families of what a prompt can be sent to.

mod anthropic;
mod chat;
mod echo;
mod exec;
mod http;
mod ollama;
mod openai;
mod prices;
mod script;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use crate::calling::spec::ProviderSpec;
use crate::calling::{CallError, Provider, ProviderFactory};
use crate::code::{RepairProvider, SandboxProvider};
use crate::reading::files;
use crate::sandboxes::Sandboxes;
use crate::script::{Language, Workers};
use prices::Prices;

/// The families of providers.
#[derive(Debug, Clone, PartialEq)]
pub enum Family {
    /// The provider `echo`.
    Echo,
    /// `sandbox`, with a language or without.
    Sandbox(Option<&'static str>),
    /// `patch`, which has a model repair a repository.
    Repair,
    /// `exec:…`, with the command.
    Exec(String),
    /// A service of the OpenAI dialect.
    OpenAi(openai::OpenAi),
    /// Anthropic's messages.
    Anthropic,
    /// A model that Ollama runs.
    Ollama,
    /// Any HTTP service.
    Http,
    /// A file with code.
    Script(Language, PathBuf, Option<String>),
}

impl Family {
    /// Whether `file://` values of the configuration stand for what the files hold. The other families read files themselves.
    pub fn takes_data(&self) -> bool {
        matches!(
            self,
            Self::OpenAi(_)
                | Self::Anthropic
                | Self::Ollama
                | Self::Http
                | Self::Script(Language::Python, _, _)
        )
    }
}

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
            Ok(Family::Script(language, path, name.map(str::to_owned)))
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
    if id == RepairProvider::ID {
        return Ok(Family::Repair);
    }
    if let Some(command) = id.strip_prefix("exec:") {
        return Ok(Family::Exec(command.trim().to_owned()));
    }
    if let Some(reference) = id.strip_prefix("python:") {
        return script(Language::Python, reference);
    }
    let extension = files::extension(id);
    if id.starts_with("file://")
        || ((extension == "py" || files::is_javascript(&extension)) && !id.contains("://"))
    {
        return match extension.as_str() {
            "py" => script(Language::Python, id),
            extension if files::is_javascript(extension) => script(Language::JavaScript, id),
            _ => Err(CallError::NotAProviderFile(id.to_owned())),
        };
    }
    if let Some(found) = openai::OpenAi::parse(id) {
        return found.map(Family::OpenAi);
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
            Prices::read(&file).map(Arc::new).map_err(|reason| CallError::Prices { path, reason })
        };
        self.prices.get_or_init(read).clone()
    }
}

impl ProviderFactory for Factory {
    fn make(&self, spec: &ProviderSpec) -> Result<Box<dyn Provider>, CallError> {
        let mut config = spec.config.clone();
        config.insert("basePath".to_owned(), json!(spec.base));
        let options = json!({"id": spec.name(), "config": config, "env": spec.env});
        let env = || self.workers.env().with(&spec.env);
        Ok(match family_of(spec)? {
            Family::Echo => Box::new(echo::Echo),
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
            Family::OpenAi(model) => Box::new(openai::OpenAiProvider::new(model, env(), self.prices()?)),
            Family::Anthropic => match anthropic::Anthropic::parse(&spec.id, env(), self.prices()?) {
                Some(model) => Box::new(model),
                None => return Err(CallError::NoModel(spec.id.clone())),
            },
            Family::Ollama => match ollama::Ollama::parse(&spec.id, env()) {
                Some(model) => Box::new(model),
                None => return Err(CallError::NoModel(spec.id.clone())),
            },
            Family::Http => {
                let url = spec.config.get("url").and_then(Value::as_str);
                Box::new(http::Http::new(&spec.id, url, Arc::clone(&self.workers)))
            }
            Family::Script(language, path, name) => {
                let file = script::File { language, path, name };
                Box::new(script::Script::new(&spec.id, file, options, Arc::clone(&self.workers)))
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
        assert!(of("http").is_err());
        for id in [
            "openai:image:x",
            "openai:codex-sdk",
            "openai:agents:file://a.ts",
            "openai:chatkit:wf_1",
            "anthropic:claude-agent-sdk",
            "anthropic:completion:claude-2.1",
        ] {
            assert!(matches!(of(id), Err(CallError::UnsupportedEndpoint { .. })), "{id}");
        }
        assert!(of("nobody:x").is_err());
        assert!(of("file://missing.py").is_err());
    }
}
