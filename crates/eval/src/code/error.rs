//! Reasons why the code of an answer is not graded. They are shown as the error of the row, so each message is complete.

use std::path::PathBuf;

use serde_json::Value;

use super::run::{Execution, tail};
use crate::calling::CallError;
use crate::sandboxes::{SandboxError, chain};

pub(super) type Result<T, E = CodeError> = std::result::Result<T, E>;

/// Reason why code was not run, or why its run says nothing about the answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CodeError {
    /// The assertion's value or the provider's configuration has an unknown key or a wrong type.
    #[error("invalid value of {of}: {error}")]
    InvalidValue { of: &'static str, error: serde_json::Error },
    #[error("invalid variable `test_cases`: {0}")]
    InvalidCases(serde_json::Error),
    #[error("`{0}` is not a language that sandboxes run")]
    UnknownLanguage(String),
    #[error("`source: {0}` is unknown: use auto, fence or whole")]
    UnknownSource(String),
    #[error("{needed_by} `function`: which function is it for?")]
    NoFunction { needed_by: &'static str },
    /// Something that sandboxes do in a few languages only.
    #[error("{supported}: use `{instead}` for {language}")]
    UnsupportedLanguage { supported: &'static str, instead: &'static str, language: String },
    #[error("test files are run for Python, JavaScript and Bash, not {0}: use `code-run`")]
    NoTestRunner(String),
    #[error("`code-tests` needs `tests`: the text of a test file, or `file://` and its path")]
    NoTests,
    #[error("failed to read `{}`: {error}", .path.display())]
    ReadTests { path: PathBuf, error: std::io::Error },
    #[error("`patch` needs `repository`, a directory or an address, and `command`, which runs the tests")]
    NoRepository,
    #[error("the provider `patch` needs `config.provider`: the model that it asks")]
    NoModel,
    #[error("`config.provider` of `patch` names no provider: {0}")]
    NotAProvider(Value),
    #[error(transparent)]
    Provider(#[from] CallError),
    /// The model that repairs a repository gave no answer.
    #[error("{0}")]
    Model(String),
    #[error("the repository `{place}` is larger than {max_mib} MiB")]
    TooLarge { place: String, max_mib: usize },
    #[error("unknown revision `{0}`")]
    UnknownRevision(String),
    #[error("repository not found: `{0}` is neither a directory nor an address")]
    RepositoryNotFound(String),
    #[error("the repository `{place}` is not available: {reason}")]
    RepositoryNotAvailable { place: String, reason: String },
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("failed to write `{path}` in the sandbox: {}", chain(.error))]
    Write { path: String, error: sandcove_client::Error },
    #[error("failed to read `{path}` of the repository: {}", chain(.error))]
    Read { path: String, error: sandcove_client::Error },
    #[error("the setup of the sandbox failed: {0}")]
    Setup(String),
    /// A step of preparing a repository failed.
    #[error("{step} failed: {failure}\n{output}")]
    Step { step: &'static str, failure: String, output: String },
    /// A test that must fail before the patch does not.
    #[error("`{0}` passes before the patch, so it decides nothing")]
    DecidesNothing(String),
    #[error("`{test}` must still pass, and fails before the patch: {failure}\n{output}")]
    FailsBefore { test: String, failure: String, output: String },
    /// Applying a patch took too long, or broke the sandbox.
    #[error("{0}")]
    Stopped(String),
}

impl CodeError {
    /// An error unless this step of the preparation ended well.
    pub(super) fn of_step(step: &'static str, done: &Execution) -> Result<()> {
        match done.failure() {
            None => Ok(()),
            Some(failure) => Err(Self::Step { step, failure, output: tail(done) }),
        }
    }
}
