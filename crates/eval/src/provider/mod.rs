//! Providers: what a prompt is sent to.

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::model::{Object, ProviderResponse};
use crate::services::Services;

/// Something that answers prompts. Failures are part of the answer ([`ProviderResponse::error`]): they end a row, not a run.
pub trait Provider: Send + Sync {
    /// The id, as in `echo` or `openai:gpt-4o`.
    fn id(&self) -> &str;
    /// Answers one prompt.
    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse>;
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
