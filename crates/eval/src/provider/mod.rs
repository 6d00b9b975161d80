//! Providers: what a prompt is sent to.

pub mod answers;
mod anthropic;
mod chat;
pub mod echo;
pub mod exec;
mod http;
mod openai;
mod script;
pub mod spec;
pub mod transport;

use std::path::PathBuf;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::code::{RepairProvider, SandboxProvider};
use crate::config::files;
use crate::model::{Object, ProviderResponse};
use crate::services::Services;
use crate::worker::Language;
use spec::ProviderSpec;

/// Something that answers prompts. Failures are part of the answer ([`ProviderResponse::error`]): they end a row, not a run.
pub trait Provider: Send + Sync {
    /// The id, as in `echo` or `openai:gpt-4o`.
    fn id(&self) -> &str;
    /// Answers one prompt.
    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse>;
    /// Whether it is a service whose answers are worth keeping.
    fn is_service(&self) -> bool {
        false
    }
    /// Whether it fills in its configuration itself, with the prompt.
    fn renders_config(&self) -> bool {
        false
    }
    /// The vector of a text, as the output; providers of nothing but vectors answer every call with one.
    fn embed<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        self.call(call)
    }
    /// How much a text is of which class: scores by class, as the output.
    fn classify<'a>(&'a self, _: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        let error = format!("the provider `{}` does not classify", self.id());
        std::future::ready(ProviderResponse::failed(error)).boxed()
    }
    /// What is not acceptable in an answer to a prompt: a list of `{code, description}`, as the output.
    fn moderate<'a>(&'a self, _: &'a Call<'a>, _answer: &'a str) -> BoxFuture<'a, ProviderResponse> {
        let error = format!("the provider `{}` does not moderate", self.id());
        std::future::ready(ProviderResponse::failed(error)).boxed()
    }
}

/// What a provider is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role<'a> {
    /// An answer to a prompt.
    Text,
    /// The vector of a text.
    Embedding,
    /// How much a text is of which class.
    Classification,
    /// Whether this answer to a prompt is acceptable.
    Moderation(&'a str),
}

impl Role<'_> {
    /// The keys of all, where a configuration names a provider for each role.
    pub const KEYS: [&'static str; 4] = ["text", "embedding", "classification", "moderation"];

    /// Its key.
    pub fn key(self) -> &'static str {
        let [text, embedding, classification, moderation] = Self::KEYS;
        match self {
            Self::Text => text,
            Self::Embedding => embedding,
            Self::Classification => classification,
            Self::Moderation(_) => moderation,
        }
    }

    async fn ask(self, provider: &dyn Provider, call: &Call<'_>) -> ProviderResponse {
        match self {
            Self::Text => provider.call(call).await,
            Self::Embedding => provider.embed(call).await,
            Self::Classification => provider.classify(call).await,
            Self::Moderation(answer) => provider.moderate(call, answer).await,
        }
    }
}

/// One prompt for a provider, with what script providers are told about it.
pub struct Call<'a> {
    /// The rendered prompt.
    pub prompt: &'a str,
    /// Variables of the row, including those only providers see (`__evalId`, …).
    pub vars: &'a Object,
    /// The provider's configuration, with the prompt's own merged over it.
    pub config: &'a Object,
    /// The `context` of script providers, as JSON: `vars`, `prompt`, `test`, `evaluationId`, `testIdx`, `promptIdx`, `repeatIndex`.
    pub context: &'a Value,
    /// Workers, sandboxes, models.
    pub services: &'a Services,
}

/// The families of providers.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// `echo`
    Echo,
    /// `sandbox`, with a language or without.
    Sandbox,
    /// `patch`, which has a model repair a repository.
    Repair,
    /// `exec:…`, with the command.
    Exec(String),
    /// A service of the OpenAI dialect.
    OpenAi(openai::OpenAi),
    /// Anthropic's messages.
    Anthropic,
    /// Any HTTP service.
    Http,
    /// A file with code.
    Script(Language, PathBuf, Option<String>),
}

/// Which family an id belongs to.
///
/// # Errors
/// When it belongs to none, with what to do.
pub fn kind_of(spec: &ProviderSpec) -> Result<Kind, String> {
    let id = spec.id.as_str();
    let script = |language, reference: &str| {
        let (path, name) = files::split_name(reference);
        let path = spec.base.join(path);
        if path.is_file() {
            Ok(Kind::Script(language, path, name.map(str::to_owned)))
        } else {
            Err(format!("there is no provider file `{}`", path.display()))
        }
    };
    if id == "echo" {
        return Ok(Kind::Echo);
    }
    if SandboxProvider::from_id(id)?.is_some() {
        return Ok(Kind::Sandbox);
    }
    if id == RepairProvider::ID {
        return Ok(Kind::Repair);
    }
    if let Some(command) = id.strip_prefix("exec:") {
        return Ok(Kind::Exec(command.trim().to_owned()));
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
            _ => Err(format!("`{id}` is no provider: a provider file is Python or JavaScript")),
        };
    }
    if let Some(found) = openai::OpenAi::parse(id) {
        return found.map(Kind::OpenAi);
    }
    if id.starts_with("anthropic:") {
        return Ok(Kind::Anthropic);
    }
    if matches!(id, "http" | "https") || id.starts_with("http://") || id.starts_with("https://") {
        let described =
            spec.config.contains_key("url") || spec.config.contains_key("request") || id.contains("://");
        return match described {
            true => Ok(Kind::Http),
            false => Err("the provider `http` needs `config.url` or `config.request`".to_owned()),
        };
    }
    Err(format!(
        "there is no provider `{id}`; use `http`, `exec:`, or a Python or JavaScript file for a service of your own"
    ))
}

/// Makes a provider.
///
/// # Errors
/// As [`kind_of`].
pub fn make(spec: &ProviderSpec) -> Result<Box<dyn Provider>, String> {
    let mut config = spec.config.clone();
    config.insert("basePath".to_owned(), json!(spec.base));
    let options = json!({"id": spec.name(), "config": config, "env": spec.env});
    Ok(match kind_of(spec)? {
        Kind::Echo => Box::new(echo::Echo),
        Kind::Sandbox => Box::new(
            SandboxProvider::from_id(&spec.id)?
                .ok_or_else(|| format!("there is no provider `{}`", spec.id))?,
        ),
        Kind::Repair => Box::new(RepairProvider),
        Kind::Exec(command) => Box::new(exec::Exec::new(&spec.id, &command, spec.base.clone(), options)),
        Kind::OpenAi(model) => Box::new(model),
        Kind::Anthropic => match anthropic::Anthropic::parse(&spec.id) {
            Some(model) => Box::new(model),
            None => return Err(format!("`{}` names no model", spec.id)),
        },
        Kind::Http => Box::new(http::Http::new(&spec.id)),
        Kind::Script(language, path, name) => {
            Box::new(script::Script::new(&spec.id, language, path, name, options))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn ids_belong_to_families() {
        let of = |id: &str| kind_of(&ProviderSpec::new(id, Path::new("/")));
        assert_eq!(of("echo"), Ok(Kind::Echo));
        assert_eq!(of("exec:cat x"), Ok(Kind::Exec("cat x".to_owned())));
        assert!(matches!(of("openai:chat:gpt-4o"), Ok(Kind::OpenAi(_))));
        assert!(matches!(of("ollama:llama3"), Ok(Kind::OpenAi(_))));
        assert_eq!(of("anthropic:messages:m"), Ok(Kind::Anthropic));
        assert_eq!(of("https://host/path"), Ok(Kind::Http));
        assert!(of("http").is_err());
        assert!(of("openai:image:x").is_err());
        assert!(of("nobody:x").is_err());
        assert!(of("file://missing.py").is_err());
    }
}
