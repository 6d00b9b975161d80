//! The provider that runs its prompt, or the code in it, in a sandbox.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::error::Result;
use super::extract::{Block, Source, canonical, extract};
use super::prepare::{self, Prepared};
use super::run::{self, Stop};
use super::settings::CodeSettings;
use crate::calling::{Call, CallError, Provider};
use crate::model::ProviderResponse;
use crate::sandboxes::Sandboxes;

/// `sandbox`, or `sandbox:` and a language. Its configuration is what `code-run` takes about the sandbox.
#[derive(Debug)]
pub struct SandboxProvider {
    id: String,
    language: Option<&'static str>,
    sandboxes: Arc<Sandboxes>,
}

impl SandboxProvider {
    /// Reads an id: none when it is not an id of this provider, else the language that it names, if any.
    ///
    /// # Errors
    /// When it names a language that sandboxes do not run.
    pub fn language_of(id: &str) -> Result<Option<Option<&'static str>>, CallError> {
        let (family, language) =
            id.split_once(':').map_or((id, None), |(family, language)| (family, Some(language)));
        if !matches!(family, "sandbox" | "e2b") {
            return Ok(None);
        }
        let known = |name: &str| canonical(name).ok_or_else(|| CallError::UnknownLanguage(name.to_owned()));
        language.map(known).transpose().map(Some)
    }

    /// A provider with this id, which runs code of `language`, or of the language that configuration or prompt name.
    pub fn new(id: &str, language: Option<&'static str>, sandboxes: Arc<Sandboxes>) -> Self {
        Self { id: id.to_owned(), language, sandboxes }
    }

    async fn run(&self, call: &Call<'_>) -> Result<ProviderResponse> {
        let mut config = call.config.clone();
        config.remove("basePath");
        let settings = CodeSettings::read(Some(&Value::Object(config)), call.vars)?;
        let wanted = self.language.or_else(|| settings.language.as_deref().and_then(canonical));
        // A prompt without a fence is code as it is.
        let block = extract(call.prompt, Source::Fence, wanted, settings.function.as_deref());
        let Block { code, tag } =
            block.unwrap_or_else(|| Block { code: call.prompt.to_owned(), tag: String::new() });
        let language = wanted.or_else(|| canonical(&tag)).unwrap_or("python");
        let Prepared { taken, .. } = prepare::prepared(&self.sandboxes, &settings, language).await?;
        let execution = run::code(&taken.sandbox, language, &code, settings.limits()).await;
        taken.end().await;
        let mut output = execution.stdout.trim().to_owned();
        if let Some(failure) = execution.failure() {
            // Suites look for the error's name in the output.
            output = [output.as_str(), failure.as_str()].join("\n").trim().to_owned();
        }
        let mut response = ProviderResponse::text(output);
        let milliseconds = execution.took.as_secs_f64() * 1000.0;
        response.latency_ms = Some(milliseconds);
        response.other.insert("executionTime".to_owned(), json!(milliseconds));
        response.other.insert("timedOut".to_owned(), json!(matches!(execution.stopped, Some(Stop::Time(_)))));
        let metadata = response.metadata.get_or_insert_default();
        metadata.insert("language".to_owned(), json!(language));
        metadata.insert("execution".to_owned(), execution.to_json());
        Ok(response)
    }
}

impl Provider for SandboxProvider {
    fn id(&self) -> &str {
        &self.id
    }

    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        async move { self.run(call).await.unwrap_or_else(ProviderResponse::failed) }.boxed()
    }
}
