//! Answers of providers.

use std::fmt::Display;

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
    /// Returns what the answer cost, in dollars; nothing if tokens were spent at an unknown price. Answers from the cache, and those
    /// that took no tokens, cost nothing.
    pub fn charge(&self) -> Option<f64> {
        match self.cost {
            _ if self.cached == Some(true) => Some(0.0),
            None if self.has_unknown_price() => None,
            cost => Some(cost.unwrap_or(0.0)),
        }
    }

    /// Whether tokens were spent and nobody knows at which price.
    pub fn has_unknown_price(&self) -> bool {
        let spent = self.token_usage.as_ref().and_then(|usage| usage.total).unwrap_or(0.0) > 0.0;
        spent && self.cost.is_none()
    }

    /// An answer of a text and nothing else.
    pub fn text(output: impl Into<String>) -> Self {
        Self { output: Some(Value::String(output.into())), ..Self::default() }
    }

    /// A failed call.
    pub fn failed(error: impl Display) -> Self {
        Self { error: Some(error.to_string()), ..Self::default() }
    }
}
