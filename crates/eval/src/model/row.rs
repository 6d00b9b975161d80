//! What a run gives: rows and columns.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{GradingResult, Object, ProviderResponse, TokenUsage};

/// A provider as results show it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProviderName {
    /// As in `openai:gpt-4o`.
    pub id: String,
    /// What the configuration calls it.
    #[serde(default)]
    pub label: String,
}

/// A prompt as results show it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptText {
    /// The text, rendered in rows.
    pub raw: String,
    /// What the configuration calls it.
    pub label: String,
    /// Its settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Object>,
}

/// Why a row did not pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Failure {
    /// It passed.
    #[default]
    None,
    /// An assertion does not hold.
    Assertion,
    /// There was no answer, or no way to judge it.
    Error,
}

impl Serialize for Failure {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*self as u8)
    }
}

impl<'de> Deserialize<'de> for Failure {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match u8::deserialize(deserializer)? {
            0 => Self::None,
            1 => Self::Assertion,
            _ => Self::Error,
        })
    }
}

/// One answer to one test, judged.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Row {
    /// Dollars.
    #[serde(serialize_with = "super::number::serialize")]
    pub cost: f64,
    /// What the test is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The failing reason, or why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The verdict; nothing if there was no answer.
    pub grading_result: Option<GradingResult>,
    /// Its own id.
    pub id: String,
    /// Milliseconds.
    #[serde(serialize_with = "super::number::serialize")]
    pub latency_ms: f64,
    /// Named scores of the verdict.
    pub named_scores: Object,
    /// The rendered prompt.
    pub prompt: PromptText,
    /// The id of the prompt.
    pub prompt_id: String,
    /// The column.
    pub prompt_idx: usize,
    /// Who answered.
    pub provider: ProviderName,
    /// The answer.
    pub response: Option<ProviderResponse>,
    /// The score of the verdict.
    #[serde(serialize_with = "super::number::serialize")]
    pub score: f64,
    /// Whether it passed.
    pub success: bool,
    /// The merged test.
    pub test_case: Object,
    /// The test after expansion.
    pub test_idx: usize,
    /// The variables as given.
    pub vars: Object,
    /// What the response tells beside the answer.
    pub metadata: Object,
    /// Why it did not pass.
    pub failure_reason: Failure,
    /// Tokens of the answer and of judging it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_usage: Option<TokenUsage>,
}

/// A provider with a prompt, and the sums over its rows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Column {
    /// The prompt before rendering.
    pub raw: String,
    /// What the configuration calls it.
    pub label: String,
    /// Its id.
    pub id: String,
    /// Its settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Object>,
    /// Who answers: label or id.
    pub provider: String,
    /// The sums.
    pub metrics: Metrics,
}

/// Sums over the rows of a column.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metrics {
    /// Of the scores.
    #[serde(serialize_with = "super::number::serialize")]
    pub score: f64,
    /// Rows that passed.
    pub test_pass_count: usize,
    /// Rows that failed.
    pub test_fail_count: usize,
    /// Rows with errors.
    pub test_error_count: usize,
    /// Assertions that passed.
    pub assert_pass_count: usize,
    /// Assertions that failed.
    pub assert_fail_count: usize,
    /// Of the latencies, in milliseconds.
    #[serde(serialize_with = "super::number::serialize")]
    pub total_latency_ms: f64,
    /// Of the tokens.
    pub token_usage: TokenUsage,
    /// Weighted sums by name, and the derived metrics.
    pub named_scores: Object,
    /// Assertions by name.
    pub named_scores_count: Object,
    /// Weights by name.
    pub named_score_weights: Object,
    /// Of the costs, in dollars.
    #[serde(serialize_with = "super::number::serialize")]
    pub cost: f64,
}

/// Sums over a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stats {
    /// Rows that passed.
    pub successes: usize,
    /// Rows that failed.
    pub failures: usize,
    /// Rows with errors.
    pub errors: usize,
    /// Of the tokens.
    pub token_usage: TokenUsage,
    /// Milliseconds from start to end.
    pub duration_ms: u64,
    /// Milliseconds of evaluating.
    pub evaluation_duration_ms: u64,
}

impl Stats {
    /// All rows.
    pub fn total(&self) -> usize {
        self.successes + self.failures + self.errors
    }

    /// The share of rows that passed, in percent.
    pub fn pass_rate(&self) -> f64 {
        if self.total() == 0 { 0.0 } else { self.successes as f64 * 100.0 / self.total() as f64 }
    }
}

/// A run: everything but its rows, which are kept by [`crate::store::recording`].
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    /// `eval-…`
    pub id: String,
    /// When it began, as in `2026-01-31T12:00:00.000Z`.
    pub created_at: String,
    /// What it is about.
    pub description: Option<String>,
    /// The configuration it ran.
    pub config: Object,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Whether any of its rows has a description.
    pub described: bool,
    /// Its sums.
    pub stats: Stats,
    /// The names of its variables, in the order they appeared.
    pub vars: Vec<String>,
    /// What the command line changed.
    pub runtime_options: Value,
}
