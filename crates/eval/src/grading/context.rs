//! The context that a grader decides in.

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::calling::Models;
use crate::model::{Assertion, GradingResult, Object, ProviderResponse, TestCase};
use crate::sandboxes::Sandboxes;
use crate::script::Workers;
use crate::traces::Trace;

/// The function that decides an assertion type.
#[derive(Clone, Copy)]
pub enum Grader {
    /// Decides at once, from what is in memory.
    Pure(fn(&GradingContext<'_>) -> GradingResult),
    /// Decides with the help of workers, sandboxes or models.
    Async(for<'a> fn(&'a GradingContext<'a>) -> BoxFuture<'a, GradingResult>),
}

/// One assertion about one answer.
pub struct GradingContext<'a> {
    /// The assertion; `assertion.value` is still a template, [`value`](Self::value) is not.
    pub assertion: &'a Assertion,
    /// The assertion's value with templates rendered and files loaded.
    pub value: Option<&'a Value>,
    /// The answer after all transforms.
    pub output: &'a Value,
    /// The answer as text: itself, or its JSON.
    pub output_text: &'a str,
    /// The variables after rendering.
    pub vars: &'a Object,
    /// The rendered prompt.
    pub prompt: &'a str,
    /// The provider's whole answer.
    pub response: &'a ProviderResponse,
    /// Milliseconds the answer took.
    pub latency_ms: f64,
    /// The provider as scripts see it: `id`, `label`, `config`.
    pub provider: &'a Object,
    /// The test.
    pub test: &'a TestCase,
    /// The position of the row.
    pub row: RowId,
    /// The processes for user code, with the directory and the variables of the suite.
    pub workers: &'a Workers,
    /// The sandboxes for code of models.
    pub sandboxes: &'a Sandboxes,
    /// The models that grade.
    pub models: &'a Models,
    /// The provider of the default test, which grades where nothing names another.
    pub fallback: Option<&'a Value>,
    /// The spans of the row, if it is traced.
    pub trace: Option<&'a Trace>,
}

/// The position of a row.
#[derive(Debug, Clone, Copy, Default)]
pub struct RowId {
    /// Counts tests after expansion and repetition.
    pub test: usize,
    /// Counts columns: providers with prompts.
    pub prompt: usize,
    /// Counts repetitions of one test.
    pub repeat: usize,
}
