//! Reasons why a run could not be made, and why a row has no verdict.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use crate::calling::CallError;
use crate::config::hooks::HookError;
use crate::reading::diagnostic::Diagnostic;
use crate::script::ScriptError;
use crate::store::StoreError;
use crate::template::TemplateError;
use crate::traces::ReceiverError;

/// Reason why a run could not be made. What goes wrong within a row is part of the row.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum RunError {
    /// An entry of `extensions` is not a hook.
    #[error(transparent)]
    HookEntry(#[from] HookError),
    /// A hook raised, or could not be called.
    #[error("the hook `{reference}` failed at {moment}: {error}")]
    Hook { reference: String, moment: &'static str, error: ScriptError },
    /// A hook returned a suite that has a key of the wrong type.
    #[error("the hook `{reference}` returned a suite with an invalid `{key}`")]
    HookSuite { reference: String, key: &'static str },
    /// A provider could not be made.
    #[error(transparent)]
    Provider(#[from] CallError),
    /// A test is for a provider that the suite does not have.
    #[error("test {test} names the unknown provider `{name}`")]
    UnknownProvider { test: usize, name: String },
    /// A test is for a prompt that the suite does not have.
    #[error("test {test} names the unknown prompt `{name}`")]
    UnknownPrompt { test: usize, name: String },
    /// The lists of a test's variables have too many combinations.
    #[error(
        "the variables of test {test} have more than {max} combinations: shorten their lists, or set `disableVarExpansion`"
    )]
    TooManyRows { test: usize, max: usize },
    /// The file of a variable could not be read.
    #[error("failed to read the variable `{name}`: `{}`: {error}", .path.display())]
    ReadVariable { name: String, path: PathBuf, error: std::io::Error },
    /// The file of a variable is not YAML.
    #[error("failed to read the variable `{name}`: {error}")]
    ParseVariable { name: String, error: Diagnostic },
    /// The glob of a variable matches no file.
    #[error("no file matches `{pattern}`, the variable `{name}`")]
    NoFiles { pattern: String, name: String },
    /// A range of tests is malformed.
    #[error("invalid range `{0}`; write a:b, counted from 0, without the end")]
    Range(String),
    /// A filter is not a regular expression.
    #[error("invalid regular expression `{pattern}`: {reason}")]
    Pattern { pattern: String, reason: String },
    /// The result file of a filter could not be read.
    #[error("failed to read the results `{path}`")]
    Unreadable { path: String, source: std::io::Error },
    /// The result file of a filter has no list of rows.
    #[error("`{path}` is not a result file")]
    NotResults { path: String, source: serde_json::Error },
    /// Results could not be stored or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The spans of rows cannot be received.
    #[error(transparent)]
    Receiver(#[from] ReceiverError),
}

/// Reason why a row, or one of its assertions, has no verdict. It is shown as the error of the row, so each message is complete.
#[derive(Debug, thiserror::Error)]
pub(super) enum RowError {
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error(transparent)]
    Call(#[from] CallError),
    /// The function of a variable raised, or could not be called.
    #[error("the variable `{name}`: {error}")]
    Variable { name: String, error: ScriptError },
    /// The function of a variable returned an `error`.
    #[error("the variable `{name}`: {error}")]
    VariableRefused { name: String, error: String },
    #[error("the function of the variable `{0}` must return `output` or `error`")]
    VariableShape(String),
    #[error("`transformVars` must give an object")]
    NoVariables,
    /// `transformVars` of the test failed.
    #[error("{0}")]
    TransformVars(Arc<RowError>),
    #[error("the prompt function: {0}")]
    PromptFunction(ScriptError),
    #[error("the prompt cannot be rendered: {0}")]
    Prompt(TemplateError),
    /// The answer of the provider is an error.
    #[error("{0}")]
    Answer(String),
    #[error("No output")]
    NoOutput,
    /// The verdict says that something around the answer broke.
    #[error("{0}")]
    Verdict(String),
    #[error("the value cannot be rendered: {0}")]
    Value(TemplateError),
    #[error("`{0}` must give the expected value, not a verdict")]
    ValueIsVerdict(String),
    #[error("failed to read `{}`: {error}", .path.display())]
    ReadValue { path: PathBuf, error: std::io::Error },
    #[error("{0}")]
    ParseValue(Diagnostic),
    #[error("unknown file extension `.{0}` of a value; use .json, .yaml, .txt, .md, .py or .js")]
    ValueExtension(String),
    /// The model that compares outputs answered with an error.
    #[error("the grader `{id}` failed: {error}")]
    Grader { id: String, error: String },
    #[error("`sequence` needs `config.inputs`, the list of its prompts")]
    NoInputs,
    #[error("the simulated user needs a model: name one in `config.userProvider` or `options.provider`")]
    NoUser,
    /// The model that plays a user answered with an error.
    #[error("the simulated user: {0}")]
    User(String),
    #[error("the simulated user said nothing")]
    SilentUser,
    /// The text of `initialMessages` is not JSON.
    #[error(transparent)]
    ParseMessages(serde_json::Error),
    #[error("`initialMessages` must be a list of messages")]
    NotMessages,
    #[error("`initialMessages` has something that is no message: {0}")]
    NotAMessage(Value),
    #[error("`{0}` needs `config.injectVar`, the variable that carries the attack")]
    NoInjectVar(String),
    #[error("`{name}` needs `config.{key}`: how the attacker goes about it")]
    NoWay { name: String, key: &'static str },
    #[error("the attacker needs a model: name one in `redteam.provider`")]
    NoAttacker,
    /// The model that writes the messages of an attack answered with an error.
    #[error("the attacker `{id}`: {error}")]
    Attacker { id: String, error: String },
    #[error("the attacker `{id}` wrote no message: {said}")]
    SilentAttacker { id: String, said: String },
    #[error("the attacker wrote no message")]
    NoAttack,
}
