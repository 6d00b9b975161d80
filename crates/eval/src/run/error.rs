//! Why a run could not be made.

use crate::calling::CallError;
use crate::config::hooks::HookError;
use crate::script::ScriptError;
use crate::store::StoreError;

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
    /// The file of a variable could not be read.
    #[error("failed to read the variable `{name}`: {reason}")]
    Variable { name: String, reason: String },
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
}
