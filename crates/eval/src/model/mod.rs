//! What a run is made of: tests, assertions, answers, verdicts and rows.

mod assertion;
mod grading;
mod response;
mod test_case;

pub use assertion::Assertion;
pub use grading::GradingResult;
pub use response::{Guardrails, ProviderResponse, TokenUsage};
pub use test_case::TestCase;

/// A JSON object in the order it was written.
pub type Object = serde_json::Map<String, serde_json::Value>;
