//! Verdicts.

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Assertion, Object, TokenUsage};

/// The verdict of one assertion, of a set, or of a whole row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GradingResult {
    /// Whether the assertion holds.
    pub pass: bool,
    /// The score, usually from 0 to 1.
    #[serde(serialize_with = "super::number::serialize")]
    pub score: f64,
    /// The reason, for a reader.
    pub reason: String,
    /// Scores by the name of their metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_scores: Option<Object>,
    /// The weights that the named scores are means over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_score_weights: Option<Object>,
    /// Tokens spent on grading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_used: Option<TokenUsage>,
    /// The verdicts that this one is made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component_results: Option<Vec<GradingResult>>,
    /// The assertion, as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assertion: Option<Value>,
    /// A note of a user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Free information from the grader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// Better prompts, from graders that propose some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestions: Option<Value>,
    /// The reason why there is no verdict: the row becomes an error row, and its other verdicts are kept.
    #[serde(skip)]
    pub row_error: Option<String>,
}

impl GradingResult {
    /// A verdict that holds, with this score.
    pub fn passed(score: f64, reason: impl Into<String>) -> Self {
        Self { pass: true, score, reason: reason.into(), ..Self::default() }
    }

    /// A verdict that does not hold, with score 0.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ..Self::default() }
    }

    /// No verdict: something around the answer broke, so neither a pass nor a fail would be true.
    pub fn broken(error: impl Display) -> Self {
        let error = error.to_string();
        Self { reason: error.clone(), row_error: Some(error), ..Self::default() }
    }

    /// The usual verdict of a yes-or-no check: flipped by `not-`, score 1 or 0, `reason` when it fails.
    pub fn of(assertion: &Assertion, holds: bool, reason: impl FnOnce() -> String) -> Self {
        if holds != assertion.negated {
            Self::passed(1.0, "Assertion passed")
        } else {
            Self::failed(reason())
        }
    }
}
