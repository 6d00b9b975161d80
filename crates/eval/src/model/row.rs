//! The results of a run: rows and columns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{GradingResult, Object, ProviderResponse, TokenUsage};

/// A provider as results show it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProviderName {
    /// The id, as in `openai:gpt-4o`.
    pub id: String,
    /// The label of the configuration.
    #[serde(default)]
    pub label: String,
}

impl ProviderName {
    /// Returns the label, else the id.
    pub fn name(&self) -> &str {
        if self.label.is_empty() { &self.id } else { &self.label }
    }
}

/// A prompt as results show it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptText {
    /// The text, rendered in rows.
    pub raw: String,
    /// The label of the configuration.
    pub label: String,
    /// The settings of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Object>,
}

/// The kind of failure of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Failure {
    /// The row passed.
    #[default]
    None,
    /// An assertion does not hold.
    Assertion,
    /// There was no answer, or no way to grade it.
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

/// One answer to one test, graded.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Row {
    /// The cost in dollars; nothing if tokens were spent at an unknown price.
    #[serde(serialize_with = "super::number::serialize_option")]
    pub cost: Option<f64>,
    /// The description of the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The failing reason, or why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The verdict; nothing if there was no answer.
    pub grading_result: Option<GradingResult>,
    /// The id of the row.
    pub id: String,
    /// The latency in milliseconds.
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
    /// The provider that answered.
    pub provider: ProviderName,
    /// The answer.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    /// The metadata of the test, with that of the response over it.
    pub metadata: Object,
    /// The reason for not passing.
    pub failure_reason: Failure,
    /// Tokens of the answer and of judging it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_usage: Option<TokenUsage>,
    /// The id of the row's trace, if it is traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

impl Row {
    /// Returns what tells the test from others: its description, else its variables, else its number, counted from 1.
    pub fn about(&self) -> String {
        about(self.description.as_deref(), &self.vars, self.test_idx)
    }

    /// Returns the verdict in a word: `PASS`, `FAIL` or `ERROR`.
    pub fn verdict(&self) -> &'static str {
        match (self.success, self.failure_reason) {
            (true, _) => "PASS",
            (false, Failure::Error) => "ERROR",
            (false, _) => "FAIL",
        }
    }
}

/// The most characters of a variable, and of all of them, in the name of a test.
const MAX_NAMED: (usize, usize) = (40, 100);

/// Returns what tells a test from others: its description, else its variables, else its number, counted from 1.
pub fn about(description: Option<&str>, vars: &Object, test_idx: usize) -> String {
    if let Some(description) = description {
        return description.to_owned();
    }
    let shown = vars.iter().filter(|(name, _)| !name.starts_with('_')).map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", short(&text.split_whitespace().collect::<Vec<_>>().join(" "), MAX_NAMED.0))
    });
    let shown = short(&shown.collect::<Vec<_>>().join(" "), MAX_NAMED.1);
    if shown.is_empty() { format!("test {}", test_idx + 1) } else { shown }
}

fn short(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    text.chars().take(length - 1).chain(['…']).collect()
}

/// A provider with a prompt, and the sums over its rows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Column {
    /// The prompt before rendering.
    pub raw: String,
    /// The label of the configuration.
    pub label: String,
    /// The id of the prompt.
    pub id: String,
    /// The settings of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Object>,
    /// The provider: label or id.
    pub provider: String,
    /// The sums.
    pub metrics: Metrics,
}

/// How well a column writes code.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CodeMetrics {
    /// The tests, repeats counted once.
    pub tasks: usize,
    /// The answers to the test that has the fewest.
    pub samples: usize,
    /// The chances that one of so many answers passes.
    pub pass_at: Vec<PassAt>,
    /// Tests that some answers pass and others do not.
    pub flaky: usize,
    /// The median time of a case, in milliseconds.
    pub p50_ms: Option<f64>,
    /// The 95th percentile of the time of a case, in milliseconds.
    pub p95_ms: Option<f64>,
    /// The median memory of a case, in MiB on top of what the interpreter had before the answer's code.
    pub p50_memory_mb: Option<f64>,
    /// The 95th percentile of the memory of a case, in MiB.
    pub p95_memory_mb: Option<f64>,
    /// Cases by the limit that they hit: `time`, `memory`, `output` or `network`.
    pub limits: BTreeMap<String, usize>,
}

/// The chance that at least one of some answers passes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PassAt {
    /// The number of answers.
    pub k: usize,
    /// The chance, from 0 to 1.
    pub rate: f64,
    /// The lower end of its interval of 95 %.
    pub low: f64,
    /// The upper end of its interval of 95 %.
    pub high: f64,
}

/// Sums over the rows of a column.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metrics {
    /// The sum of the scores.
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
    /// The sum of the latencies, in milliseconds.
    #[serde(serialize_with = "super::number::serialize")]
    pub total_latency_ms: f64,
    /// The sum of the tokens.
    pub token_usage: TokenUsage,
    /// Weighted sums by name, and the derived metrics.
    pub named_scores: Object,
    /// Assertions by name.
    pub named_scores_count: Object,
    /// Weights by name.
    pub named_score_weights: Object,
    /// The sum of the known costs, in dollars.
    #[serde(serialize_with = "super::number::serialize")]
    pub cost: f64,
    /// How well the column writes code, where assertions ran code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<CodeMetrics>,
    /// Rows that spent tokens at an unknown price.
    #[serde(skip_serializing_if = "is_zero")]
    pub unknown_cost_count: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
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
    /// The sum of the tokens.
    pub token_usage: TokenUsage,
    /// Milliseconds from start to end.
    pub duration_ms: u64,
    /// Milliseconds of evaluating.
    pub evaluation_duration_ms: u64,
}

impl Stats {
    /// Returns the number of rows.
    pub fn total(&self) -> usize {
        self.successes + self.failures + self.errors
    }

    /// Returns the share of rows that passed, in percent.
    pub fn pass_rate(&self) -> f64 {
        if self.total() == 0 { 0.0 } else { self.successes as f64 * 100.0 / self.total() as f64 }
    }
}

/// A run: everything but its rows, which are kept by [`crate::store::recording`].
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    /// Id of the run: `eval-…`.
    pub id: String,
    /// The time at which the run started, as in `2026-01-31T12:00:00.000Z`.
    pub created_at: String,
    /// The description.
    pub description: Option<String>,
    /// The configuration.
    pub config: Object,
    /// The columns.
    pub columns: Vec<Column>,
    /// Whether any row has a description.
    pub described: bool,
    /// The sums over all rows.
    pub stats: Stats,
    /// The names of the variables, in the order they appeared.
    pub vars: Vec<String>,
    /// The options of the command line that change the run.
    pub runtime_options: Value,
}

impl Evaluation {
    /// Makes an id for a run that starts now.
    pub fn new_id() -> String {
        Self::id_at(jiff::Timestamp::now())
    }

    /// Makes an id for a run that starts at a time: `eval-abc-2026-01-31T12:00:00`.
    pub fn id_at(at: jiff::Timestamp) -> String {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        let word: String = (0..3).map(|_| LETTERS[rand::random_range(0..LETTERS.len())] as char).collect();
        format!("eval-{word}-{}", at.strftime("%Y-%m-%dT%H:%M:%S"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tests_are_named_by_what_tells_them_apart() {
        let vars = json!({"word": "hi\n there", "n": 3, "_conversation": []});
        let vars = vars.as_object().unwrap();
        assert_eq!(about(Some("first"), vars, 0), "first");
        assert_eq!(about(None, vars, 0), "word=hi there n=3");
        assert_eq!(about(None, &Object::new(), 0), "test 1");
        let long = json!({"a": "x".repeat(200), "b": "y".repeat(200), "c": "z".repeat(200)});
        let long = about(None, long.as_object().unwrap(), 0);
        assert_eq!(long.chars().count(), 100);
        assert!(long.starts_with("a=xxx") && long.contains("… b=y") && long.ends_with('…'));
    }
}
