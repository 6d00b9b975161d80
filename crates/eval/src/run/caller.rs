//! Calls of providers.

use crate::model::ProviderResponse;
use crate::provider::{Call, Provider};
use crate::services::Services;

/// Calls providers for all rows of a run.
#[derive(Debug)]
pub struct Caller {
    #[allow(dead_code, reason = "the cache follows")]
    cache: bool,
}

impl Caller {
    /// With or without the cache.
    pub fn new(cache: bool, _services: &Services) -> Self {
        Self { cache }
    }

    /// Calls a provider.
    pub async fn call(&self, provider: &dyn Provider, call: &Call<'_>, _repeat: usize) -> ProviderResponse {
        provider.call(call).await
    }
}
