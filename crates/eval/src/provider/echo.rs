//! The provider that answers with the prompt.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;

use crate::calling::{Call, Provider};
use crate::model::{Object, ProviderResponse, TokenUsage};

/// Provider `echo`.
pub struct Echo;

impl Provider for Echo {
    fn id(&self) -> &str {
        "echo"
    }

    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        let usage = TokenUsage {
            total: Some(0.0),
            prompt: Some(0.0),
            completion: Some(0.0),
            num_requests: Some(1.0),
            ..TokenUsage::default()
        };
        let response = ProviderResponse {
            output: Some(json!(call.prompt)),
            raw: Some(json!(call.prompt)),
            cost: Some(0.0),
            cached: Some(false),
            is_refusal: Some(false),
            token_usage: Some(usage),
            metadata: Some(Object::new()),
            ..ProviderResponse::default()
        };
        std::future::ready(response).boxed()
    }
}
