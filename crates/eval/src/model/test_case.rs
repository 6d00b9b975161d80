//! One test: variables, and what must hold for the answer.

use serde_json::Value;

use super::{Assertion, Object};

/// A test after defaults were merged into it.
#[derive(Debug, Clone, Default)]
pub struct TestCase {
    /// What it is about.
    pub description: Option<String>,
    /// Values for the prompt's variables.
    pub vars: Object,
    /// What must hold.
    pub assertions: Vec<Assertion>,
    /// The score that is enough, whatever single assertions say.
    pub threshold: Option<f64>,
    /// Settings: `prefix`, `suffix`, `transform`, `rubricPrompt`, and what scripts want to see.
    pub options: Object,
    /// Free information, for filters and scripts.
    pub metadata: Object,
    /// An answer given beforehand, so that no provider is called.
    pub provider_output: Option<Value>,
    /// A script that makes the row's verdict from the named scores.
    pub scoring_function: Option<Value>,
    /// The test as scripts and result files see it.
    pub raw: Object,
}
