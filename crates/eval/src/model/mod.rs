//! What a run is made of: tests, assertions, answers, verdicts and rows.

mod assertion;
mod grading;
pub mod number;
mod response;
mod row;
mod test_case;

pub use assertion::Assertion;
pub use grading::GradingResult;
pub use number::{number, number_value};
pub use response::{Guardrails, ProviderResponse, TokenUsage};
pub use row::{
    CodeMetrics, Column, Evaluation, Failure, Metrics, PassAt, PromptText, ProviderName, Row, Stats, about,
};
pub use test_case::TestCase;

/// A JSON object in the order it was written.
pub type Object = serde_json::Map<String, serde_json::Value>;
