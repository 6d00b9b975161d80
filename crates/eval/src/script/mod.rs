//! User code: files and inline code in Python, Node and Ruby processes, inline JavaScript in the engine, and commands.
//!
//! A worker process serves one call at a time and is kept for the next. Calls and replies have descriptors of their own, so that
//! what user code prints is only ever captured. A process that dies or exceeds its time limit is replaced, and its call fails.

pub mod command;
pub mod inline;
mod pool;
mod process;
pub mod transform;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::javascript::JavaScriptError;
use crate::reading::{Env, files};

/// The time limit of a call, unless the suite or the kind of call sets another.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The language of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Language {
    /// Python 3.
    Python,
    /// JavaScript and TypeScript.
    JavaScript,
    /// Ruby; for assertions only.
    Ruby,
}

impl Language {
    /// Returns the language of a file of Python or JavaScript, with or without the name of a function after its path.
    pub fn of_file(reference: &str) -> Self {
        if files::extension(reference) == "py" { Self::Python } else { Self::JavaScript }
    }
}

/// The code that a call enters.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the variants' descriptions name their fields")]
pub enum EntryPoint {
    /// A function of a file: the named one (`Class.method` too), else the first of `default` that exists (for JavaScript
    /// the module itself or its default export goes before those, and is the value if it is data and `default` is empty). Called
    /// with the arguments as they are.
    Function { path: PathBuf, name: Option<String>, default: &'static [&'static str] },
    /// A provider in a file: `call_api` and its like in Python; in JavaScript a class (made once for each `options`), an object
    /// with `callApi` and its like, or a bare function. `default` is the method, `set` what the object of a class gets: its `label`,
    /// `delay` and `transform`. The arguments are `[prompt, context, options]`; Python gets them as `(prompt, options, context)`, and
    /// other methods than `call_api` as `(prompt, options)`.
    Provider { path: PathBuf, name: Option<String>, default: &'static str, options: Value, set: Value },
    /// The configuration that a program of JavaScript exports: its value, or what its function returns. Functions within it become
    /// references `file://path:@where`, which can be called as functions of the file.
    Configuration { path: PathBuf },
    /// The tests that a file of JavaScript exports: a list, or what its function returns. Functions become references as those of a
    /// configuration do.
    Tests { path: PathBuf },
    /// Code of one line (an expression) or a function body, with these parameter names.
    Inline { code: String, parameters: &'static [&'static str] },
}

/// One call of user code.
#[derive(Debug, Clone)]
pub struct ScriptCall {
    /// The language of the interpreter.
    pub language: Language,
    /// The code that is called.
    pub entry: EntryPoint,
    /// The arguments, as JSON.
    pub arguments: Vec<Value>,
    /// The time limit.
    pub time_limit: Duration,
    /// The interpreter's program: `config.pythonExecutable` or `config.rubyExecutable`.
    pub interpreter: Option<String>,
    /// Whether the file must have a process of its own for each call (`config.isolation: process`).
    pub isolated: bool,
}

impl ScriptCall {
    /// A call with the usual time limit, in a shared process of the default interpreter.
    pub fn new(language: Language, entry: EntryPoint, arguments: Vec<Value>) -> Self {
        Self { language, entry, arguments, time_limit: TIME_LIMIT, interpreter: None, isolated: false }
    }

    /// Sets the time limit.
    #[must_use]
    pub fn within(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }
}

/// The result of a call.
#[derive(Debug, Clone, Default)]
pub struct ScriptReply {
    /// The value, as JSON; null for none.
    pub value: Value,
    /// The text that the code printed to standard output.
    pub stdout: String,
    /// The text that the code printed to standard error.
    pub stderr: String,
}

/// Reason why user code gave no value.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the variants' descriptions name their fields")]
pub enum ScriptError {
    /// The code raised or threw, with its message and traceback.
    #[error("{message}")]
    Raised { message: String, traceback: String },
    /// The file, function or export does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The call exceeded its time limit; the worker was ended.
    #[error("the call took longer than {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The interpreter could not be started or died.
    #[error("{0}")]
    Worker(String),
    /// Inline JavaScript failed in the engine.
    #[error(transparent)]
    JavaScript(#[from] JavaScriptError),
    /// The thread of the JavaScript engine panicked.
    #[error("the JavaScript engine stopped")]
    EngineStopped,
    /// A transform is neither code nor a path.
    #[error("a transform must be code or a `file://` path")]
    NotATransform,
    /// A transform returned no value.
    #[error("the transform gave nothing:\n{0}")]
    NoValue(String),
    /// A command line has no program.
    #[error("the command is empty")]
    EmptyCommand,
    /// A program could not be started.
    #[error("failed to run `{program}`: {error}")]
    Start { program: String, error: std::io::Error },
    /// A program exceeded its time limit.
    #[error("`{program}` took longer than {} s", limit.as_secs())]
    CommandTimedOut { program: String, limit: Duration },
    /// A program ended with a failure, with what it printed.
    #[error("`{program}` failed ({status}): {printed}")]
    CommandFailed { program: String, status: std::process::ExitStatus, printed: String },
    /// A program printed only to standard error.
    #[error("{0}")]
    OnlyStderr(String),
}

/// The worker processes of all languages, with the directory and the variables of the suite that they run in. Processes start on
/// first use and end when this is dropped.
#[derive(Debug)]
pub struct Workers {
    base: PathBuf,
    env: Env,
    python: pool::Pool,
    javascript: pool::Pool,
    ruby: pool::Pool,
}

impl Workers {
    /// Pools of at most `concurrency` processes for each language; code runs in `base`, with the variables of `env` on top of
    /// this process's own.
    pub fn new(base: PathBuf, env: Env, concurrency: usize) -> Self {
        let pool = |language| pool::Pool::new(language, base.clone(), env.clone(), concurrency);
        let [python, javascript, ruby] = [Language::Python, Language::JavaScript, Language::Ruby].map(pool);
        Self { base, env, python, javascript, ruby }
    }

    /// The directory that `file://` paths are relative to.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// The variables of the suite.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Runs one call.
    ///
    /// # Errors
    /// When the code cannot be found, fails, takes too long or its process dies.
    pub async fn call(&self, call: ScriptCall) -> Result<ScriptReply, ScriptError> {
        match call.language {
            Language::Python => self.python.call(call).await,
            Language::JavaScript => self.javascript.call(call).await,
            Language::Ruby => self.ruby.call(call).await,
        }
    }

    /// Calls the function that `reference` names, as in `file://checks.py:grade`, and returns its value. A reference without a
    /// name stands for the first of `python` that exists, or for the default export of JavaScript.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn invoke(
        &self,
        reference: &str,
        python: &'static [&'static str],
        arguments: Vec<Value>,
    ) -> Result<Value, ScriptError> {
        let language = Language::of_file(reference);
        let entry = EntryPoint::function(&self.base, reference, language, python);
        self.call(ScriptCall::new(language, entry, arguments)).await.map(|reply| reply.value)
    }
}

impl EntryPoint {
    /// The function that `reference` names in a file relative to `base`, else the first of `python`, or the default export of
    /// JavaScript.
    pub fn function(
        base: &Path,
        reference: &str,
        language: Language,
        python: &'static [&'static str],
    ) -> Self {
        let (path, name) = files::split_name(reference);
        let default: &[&str] = if language == Language::JavaScript { &["default"] } else { python };
        Self::Function { path: base.join(path), name: name.map(str::to_owned), default }
    }
}
