//! One test, apart from its variables.

use std::sync::Arc;

use serde_json::Value;

use super::{Assertion, Object};

/// A test after defaults were merged into it. All rows of the test share it.
#[derive(Debug, Clone, Default)]
pub struct TestCase {
    /// The description.
    pub description: Option<String>,
    /// The checks of the answer.
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
    pub raw: Arc<Object>,
}
