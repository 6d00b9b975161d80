//! Answers of providers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Object;

/// Tokens of one or of many calls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenUsage {
    /// All tokens.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::number::serialize_option")]
    pub total: Option<f64>,
    /// Tokens of prompts.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::number::serialize_option")]
    pub prompt: Option<f64>,
    /// Tokens of answers.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::number::serialize_option")]
    pub completion: Option<f64>,
    /// Tokens that came from the cache.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::number::serialize_option")]
    pub cached: Option<f64>,
    /// Calls made.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::number::serialize_option")]
    pub num_requests: Option<f64>,
    /// Breakdown of the answer's tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_details: Option<Object>,
    /// Tokens of grading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assertions: Option<Box<TokenUsage>>,
}

/// The findings of the provider's own guard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Guardrails {
    /// Whether prompt or answer were flagged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flagged: Option<bool>,
    /// Whether the prompt was flagged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flagged_input: Option<bool>,
    /// Whether the answer was flagged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flagged_output: Option<bool>,
    /// The reason for flagging.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The answer of a provider, in the keys script providers return and result files hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderResponse {
    /// The answer: text, or any JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The reason why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The reply as it was received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<Value>,
    /// Tokens used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_usage: Option<TokenUsage>,
    /// The cost in dollars.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::number::serialize_option")]
    pub cost: Option<f64>,
    /// Whether the answer came from the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<bool>,
    /// Milliseconds the call took, when the provider knows better than a clock around it.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::number::serialize_option")]
    pub latency_ms: Option<f64>,
    /// Logarithms of the probabilities of the tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_probs: Option<Vec<f64>>,
    /// The reason why the model stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// Whether the model refused to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_refusal: Option<bool>,
    /// The findings of the provider's guard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guardrails: Option<Guardrails>,
    /// Anything else worth keeping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// The text that was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Value>,
    /// The session of a stateful target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The output after the provider's transform and before the test's; checks of retrieval look at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_transformed_output: Option<Value>,
    /// Keys of script providers that have no meaning here, kept for scripts and exports.
    #[serde(flatten)]
    pub other: Object,
}

impl ProviderResponse {
    /// An answer of a text and nothing else.
    pub fn text(output: impl Into<String>) -> Self {
        Self { output: Some(Value::String(output.into())), ..Self::default() }
    }

    /// A failed call.
    pub fn failed(error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..Self::default() }
    }
}
