//! Calling providers: the trait they implement, what configurations say about them, the cache of their answers, and HTTP.
//!
//! The families of providers are in [`crate::provider`]; rooms below it make one through a [`ProviderFactory`].

pub mod answers;
pub mod spec;
pub mod transport;

use std::path::PathBuf;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::model::{Object, ProviderResponse};
use answers::Answers;
use spec::ProviderSpec;

/// Something that answers prompts. Failures are part of the answer ([`ProviderResponse::error`]): they end a row, not a run.
pub trait Provider: Send + Sync {
    /// The id, as in `echo` or `openai:gpt-4o`.
    fn id(&self) -> &str;
    /// Answers one prompt.
    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse>;
    /// Returns the name that results show, where it is not the id of the configuration: what a script says of itself, the address of
    /// a service.
    fn shown_as(&self) -> BoxFuture<'_, Option<String>> {
        std::future::ready(None).boxed()
    }
    /// Whether [`shown_as`](Self::shown_as) also holds where the configuration has a map with the id, and not the id alone.
    fn names_itself(&self) -> bool {
        false
    }
    /// Whether the provider is a service whose answers are worth caching.
    fn is_service(&self) -> bool {
        false
    }
    /// Whether the provider renders the templates of its configuration itself, with the prompt.
    fn renders_config(&self) -> bool {
        false
    }
    /// Returns settings of a call with what their files hold and their functions return; nothing if they are complete.
    fn settled<'a>(&'a self, _config: &'a Object) -> BoxFuture<'a, Result<Option<Object>, CallError>> {
        std::future::ready(Ok(None)).boxed()
    }
    /// Checks, before anything is asked, that what a call needs is there: the key of a service.
    ///
    /// # Errors
    /// [`CallError::NoKey`] when the service needs a key and none is set.
    fn check(&self, _config: &Object) -> Result<(), CallError> {
        Ok(())
    }
    /// Returns the vector of a text as the output; providers of nothing but vectors answer every call with one.
    fn embed<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        self.call(call)
    }
    /// Returns the scores of a text by class as the output.
    fn classify<'a>(&'a self, _: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        let error = format!("the provider `{}` does not classify", self.id());
        std::future::ready(ProviderResponse::failed(error)).boxed()
    }
    /// Returns what is not acceptable in an answer to a prompt as the output: a list of `{code, description}`.
    fn moderate<'a>(&'a self, _: &'a Call<'a>, _answer: &'a str) -> BoxFuture<'a, ProviderResponse> {
        let error = format!("the provider `{}` does not moderate", self.id());
        std::future::ready(ProviderResponse::failed(error)).boxed()
    }
}

/// The kind of answer that a provider is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role<'a> {
    /// An answer to a prompt.
    Text,
    /// The vector of a text.
    Embedding,
    /// The scores of a text by class.
    Classification,
    /// Whether this answer to a prompt is acceptable.
    Moderation(&'a str),
}

impl Role<'_> {
    /// The keys of all roles, where a configuration names a provider for each role.
    pub const KEYS: [&'static str; 4] = ["text", "embedding", "classification", "moderation"];

    /// The key of the role.
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

/// One prompt for a provider, with the context that script providers get.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The rendered prompt.
    pub prompt: &'a str,
    /// Variables of the row, including those only providers see (`__evalId`, …).
    pub vars: &'a Object,
    /// The provider's configuration, with the prompt's own merged over it.
    pub config: &'a Object,
    /// The `context` of script providers, as JSON: `vars`, `prompt`, `test`, `evaluationId`, `testIdx`, `promptIdx`, `repeatIndex`, and
    /// for JavaScript [`FILTERS`] and [`ORIGINAL`].
    pub context: &'a Value,
}

/// The key of the suite's filters in a context: texts of modules, by name.
pub const FILTERS: &str = "filters";
/// The key of the row's provider in a context: null for the one that is called.
pub const ORIGINAL: &str = "originalProvider";

/// Returns the context of programs that are not JavaScript.
pub fn plain(context: &Value) -> Value {
    let mut context = context.clone();
    if let Some(context) = context.as_object_mut() {
        context.retain(|key, _| key != FILTERS && key != ORIGINAL);
    }
    context
}

/// Makes providers from their specifications.
pub trait ProviderFactory: Send + Sync {
    /// Makes one provider.
    ///
    /// # Errors
    /// When the specification belongs to no family of providers.
    fn make(&self, spec: &ProviderSpec) -> Result<Box<dyn Provider>, CallError>;
}

/// The models that assertions and comparisons ask: a factory, and the cache of answers.
pub struct Models {
    factory: Box<dyn ProviderFactory>,
    answers: Answers,
}

impl Models {
    /// Providers of `factory`, whose answers are cached in `answers`.
    pub fn new(factory: Box<dyn ProviderFactory>, answers: Answers) -> Self {
        Self { factory, answers }
    }

    /// Makes a provider.
    ///
    /// # Errors
    /// As [`ProviderFactory::make`].
    pub fn make(&self, spec: &ProviderSpec) -> Result<Box<dyn Provider>, CallError> {
        self.factory.make(spec)
    }

    /// Calls a provider that was made before, or returns its cached answer. Every repetition of a test has answers of its own.
    pub async fn call(
        &self,
        provider: &dyn Provider,
        role: Role<'_>,
        call: &Call<'_>,
        repeat: usize,
    ) -> ProviderResponse {
        // Before the cache, which would not see that a file has changed.
        let settled = match provider.settled(call.config).await {
            Ok(settled) => settled,
            Err(error) => return ProviderResponse::failed(error),
        };
        let call = Call { config: settled.as_ref().unwrap_or(call.config), ..*call };
        self.answers.call(provider, role, &call, repeat).await
    }

    /// Makes a provider and calls it.
    ///
    /// # Errors
    /// As [`ProviderFactory::make`]; a failed call is part of the response.
    pub async fn ask(
        &self,
        spec: &ProviderSpec,
        role: Role<'_>,
        call: &Call<'_>,
        repeat: usize,
    ) -> Result<ProviderResponse, CallError> {
        let provider = self.make(spec)?;
        Ok(self.call(&*provider, role, call, repeat).await)
    }
}

/// Reason why a provider was not made, or gave no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum CallError {
    /// The id belongs to no family.
    #[error(
        "unknown provider `{0}`; use `http`, `exec:`, or a Python or JavaScript file for a service of your own"
    )]
    UnknownProvider(String),
    /// The file of a provider does not exist.
    #[error("provider file not found: `{}`", .0.display())]
    FileNotFound(PathBuf),
    /// The file of a provider is of another language.
    #[error("`{0}` is not a provider file; use a Python, JavaScript, Ruby or Go file")]
    NotAProviderFile(String),
    /// The function of a file of Go has another name.
    #[error("`{0}`: the function of a Go provider is `CallApi`")]
    NotCallApi(String),
    /// Sandboxes do not run the language.
    #[error("`{0}` is not a language that sandboxes run")]
    UnknownLanguage(String),
    /// The id has no name of a model.
    #[error("`{0}` names no model")]
    NoModel(String),
    /// The service has the endpoint, but this program does not support it.
    #[error(
        "`{id}`: `{endpoint}` is not supported; name a model, or call the service from `exec:` or a Python or JavaScript file"
    )]
    UnsupportedEndpoint { id: String, endpoint: String },
    /// The provider is a program that an adapter starts.
    #[error(
        "`{id}` is a program: `sandcove eval init --example adapters` writes `{file}`, which starts it and takes its settings; use `file://{file}`"
    )]
    Adapted { id: String, file: &'static str },
    /// The provider `http` has no address.
    #[error("the provider `http` needs `config.url` or `config.request`")]
    NoAddress,
    /// The file of prices that the user set is not one.
    #[error("failed to read the prices in `{path}`, which SANDCOVE_PRICES names: {reason}")]
    Prices { path: String, reason: String },
    /// A file or a function that a setting names gave no value.
    #[error("the setting `{name}`: {reason}")]
    Setting { name: String, reason: String },
    /// A server of tools cannot be used.
    #[error("`config.mcp`: {0}")]
    Tools(String),
    /// The provider speaks to another one, which is that of the row.
    #[error(
        "`{0}` asks the provider of the row several times: name it as `provider` of a test or of `defaultTest`"
    )]
    OnlyOfTests(String),
    /// The configuration has no address for the service.
    #[error("`{id}` needs an address: set {variable} or `config.apiHost`")]
    NoHost { id: String, variable: &'static str },
    /// The configuration has no key for the service.
    #[error("`{id}` needs a key: set {variable} or `config.apiKey`")]
    NoKey { id: String, variable: &'static str },
    /// The configuration has neither a key nor a token for Vertex AI.
    #[error(
        "`{0}` needs a key or a token: set VERTEX_API_KEY, or GOOGLE_CLOUD_PROJECT and GOOGLE_OAUTH_ACCESS_TOKEN, which `gcloud auth print-access-token` prints"
    )]
    NoGoogleToken(String),
    /// The configuration has no keys of Amazon's.
    #[error(
        "`{0}` needs keys: set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, which `aws configure export-credentials --format env` prints"
    )]
    NoAwsKey(String),
    /// The prompt begins and ends like JSON, but is malformed.
    #[error("the prompt looks like JSON but is not: {0}")]
    MalformedPrompt(String),
    /// The prompt begins like messages in YAML, but is malformed.
    #[error(
        "the prompt looks like messages in YAML but is not: {0}; write a variable as `{{{{name | dump}}}}`"
    )]
    MalformedMessages(String),
    /// The prompt is plain text, where the environment asks for JSON.
    #[error("the prompt is not JSON, and PROMPTFOO_REQUIRE_JSON_PROMPTS is set")]
    PlainPrompt,
    /// The name of the HTTP method is malformed.
    #[error("unknown HTTP method `{0}`")]
    UnknownMethod(String),
    /// The HTTP client could not be set up.
    #[error("failed to set up HTTP: {0}")]
    Setup(String),
    /// The request got no answer. The address is without its query, which may hold a key.
    #[error("request to {address} failed: {reason}")]
    NoAnswer { address: String, reason: String },
    /// The service answered with an error.
    #[error("API error: {status} {message}")]
    Service { status: u16, message: String },
}
