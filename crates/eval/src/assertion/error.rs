//! Reasons why an assertion is not decided, and why a model's grade is not available. They are shown as the error of the row, so each
//! message is complete.

use std::path::PathBuf;

use sandcove_formats::SchemaError;
use serde_json::Value;

use crate::calling::CallError;
use crate::reading::diagnostic::Diagnostic;
use crate::script::ScriptError;
use crate::template::TemplateError;

pub(super) type Result<T> = std::result::Result<T, GraderError>;

/// Reason why a grader was not asked, or why its answer is not a grade.
#[derive(Debug, thiserror::Error)]
pub enum GraderError {
    /// The assertion needs a classifier, and there is no default one.
    #[error("`{0}` needs a provider that classifies: name one in `provider`")]
    NoClassifier(String),
    /// No model is named, and there is no key for the default one.
    #[error("`{0}` needs a model: name one in `options.provider`, with --grader, or set OPENAI_API_KEY")]
    NoModel(String),
    /// There is nothing to grade by.
    #[error("`{0}` needs a `value`, or a `rubricPrompt` that says what to grade by")]
    NoRubric(String),
    /// No model that searches the web is named, and there is no key for a default one.
    #[error(
        "`{0}` needs a model that searches the web: name one in `options.provider`, as in perplexity:sonar, a model with its tool for searching, or a script; or set OPENAI_API_KEY, ANTHROPIC_API_KEY, PERPLEXITY_API_KEY or GOOGLE_API_KEY"
    )]
    NoSearch(String),
    /// No agent is named.
    #[error(
        "`{0}` needs an agent: name a script, a command or a service that runs one in `options.provider`"
    )]
    NoAgent(String),
    /// The provider that is named is a model alone.
    #[error(
        "`{kind}` needs an agent, which `{id}` is not: name a script, a command or a service that runs one in `options.provider`"
    )]
    NotAnAgent { kind: String, id: String },
    /// The scoring service of Pi needs a key.
    #[error("`{0}` needs a key: set WITHPI_API_KEY")]
    NoPiKey(String),
    /// The question for Pi has another type.
    #[error("the value of `{0}` must be text: a question about the answer")]
    PiValue(String),
    /// The scoring service of Pi gave no score.
    #[error("the scoring service failed: {0}")]
    Pi(String),
    /// The file of the grader's prompt could not be read.
    #[error("failed to read `{}`: {error}", .path.display())]
    ReadPrompt { path: PathBuf, error: std::io::Error },
    /// The grader's prompt could not be rendered.
    #[error(transparent)]
    Prompt(#[from] TemplateError),
    /// The grader could not be made.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The grader answered with an error.
    #[error("the grader `{id}` failed: {error}")]
    Failed { id: String, error: String },
    /// The grader answered without an output.
    #[error("the grader `{0}` gave no output")]
    NoOutput(String),
    /// An embedding model gave no vector.
    #[error("the provider gave no embedding")]
    NoEmbedding,
    /// A classifier gave something else.
    #[error("the provider must give scores by class, not {0}")]
    NotScores(Value),
    /// A moderator gave something else.
    #[error("the provider must give a list of flags, not {0}")]
    NotFlags(Value),
    /// The answer has no JSON object.
    #[error("the grader did not answer with JSON: {0}")]
    NotJson(String),
    /// The answer has no category of facts.
    #[error("the grader named no category from A to E: {0}")]
    NoCategory(String),
    /// The answer has no steps of an evaluation.
    #[error("the grader proposed no steps: {0}")]
    NoSteps(String),
    /// The answer has no score.
    #[error("the grader gave no score from 0 to {best}: {answer}")]
    NoScore { best: f64, answer: String },
    /// The answer has no reason.
    #[error("the grader gave no reason: {0}")]
    NoReason(String),
    /// The answer has no verdict.
    #[error("the grader's verdict is neither yes nor no: {0}")]
    NoVerdict(String),
    /// One criterion of several could not be graded.
    #[error("the criterion `{criterion}`: {error}")]
    Criterion { criterion: String, error: Box<GraderError> },
    /// The code that takes the retrieved text out of an answer failed.
    #[error("`contextTransform` failed: {0}")]
    ContextTransform(ScriptError),
    /// `contextTransform` gave something else than text.
    #[error("`contextTransform` must give text or a list of texts, not {0}")]
    ContextTransformShape(Value),
    /// The variable with the retrieved text has another type.
    #[error("the variable `context` must be text or a list of texts")]
    ContextShape,
    /// There is no retrieved text.
    #[error(
        "`{0}` needs the retrieved text: a variable `context`, or `contextTransform` to take it out of the answer"
    )]
    NoContext(String),
    /// There is no question.
    #[error("`{0}` needs a variable `query`, the question")]
    NoQuery(String),
}

/// Reason why an assertion that needs no model is not decided.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The value of the assertion lacks something, or has another type.
    #[error("`{kind}` needs {needed}")]
    Value { kind: &'static str, needed: &'static str },
    /// A key of the assertion's value has another type.
    #[error("`{kind}`: {problem}")]
    Key { kind: &'static str, problem: &'static str },
    /// A bound of a count is not a whole number.
    #[error("`{key}` of `{kind}` must be a whole number, not {value}")]
    Bound { kind: &'static str, key: &'static str, value: Value },
    /// The bounds of a count exclude every number.
    #[error("`max` of `{0}` is less than `min`")]
    Bounds(&'static str),
    /// The row is not traced.
    #[error("`{0}` needs a trace: set `tracing.enabled`, and `tracing.otlp.http.enabled` to receive spans")]
    NoTrace(String),
    /// The value of an assertion about SQL has another type.
    #[error(
        "the value of `{kind}` must be a map with `databaseType`, `allowedTables`, `allowedColumns`, not {value}"
    )]
    SqlValue { kind: String, value: Value },
    /// The dialect of SQL is unknown.
    #[error("`{kind}` knows no database `{database}`; there are {}", .known.join(", "))]
    UnknownDatabase { kind: String, database: String, known: Vec<&'static str> },
    /// The text of a schema is not YAML.
    #[error("{0}")]
    ParseSchema(Diagnostic),
    /// A schema is not valid.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}
