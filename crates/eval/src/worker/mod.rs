//! Long-lived Python and Node processes that run the user's files and inline code.
//!
//! A process serves one call at a time and is kept for the next. It gets calls and gives replies on descriptors of their own, so that
//! what user code prints is only ever captured. One that dies or is too slow is replaced; the call it had fails.

mod pool;
mod process;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::model::Object;

/// The language of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Language {
    /// Python.
    Python,
    /// JavaScript and TypeScript.
    JavaScript,
    /// Ruby; for assertions only.
    Ruby,
}

/// What in a script is called.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the variants' descriptions name their fields")]
pub enum Entry {
    /// A function of a file: the named one (`Class.method` too), else the first of `default` that exists (for JavaScript
    /// the module itself or its default export goes before those, and is the value if it is data and `default` is empty). Called
    /// with the arguments as they are.
    Function { path: PathBuf, name: Option<String>, default: &'static [&'static str] },
    /// A provider in a file: `call_api` and its like in Python; in JavaScript a class (made once for each `options`), an object
    /// with `callApi` and its like, or a bare function. `default` is the method. The arguments are `[prompt, context, options]`;
    /// Python gets them as `(prompt, options, context)`, and other methods than `call_api` as `(prompt, options)`.
    Provider { path: PathBuf, name: Option<String>, default: &'static str, options: Value },
    /// Code of one line (an expression) or a function body, with these parameter names.
    Inline { code: String, parameters: &'static [&'static str] },
}

/// One call of user code.
#[derive(Debug, Clone)]
pub struct ScriptCall {
    /// Whose interpreter.
    pub language: Language,
    /// What is called.
    pub entry: Entry,
    /// With what.
    pub arguments: Vec<Value>,
    /// How long it may take.
    pub time_limit: Duration,
    /// `config.pythonExecutable` or its like.
    pub interpreter: Option<String>,
    /// Whether the file must have a process of its own for each call (`config.isolation: process`).
    pub isolated: bool,
}

/// What a call gave.
#[derive(Debug, Clone, Default)]
pub struct ScriptReply {
    /// The value, as JSON; null for none.
    pub value: Value,
    /// What the code printed meanwhile.
    pub stdout: String,
    /// And to standard error.
    pub stderr: String,
}

/// Why a call gave nothing.
#[derive(Debug, Clone, thiserror::Error)]
#[allow(missing_docs, reason = "the variants' descriptions name their fields")]
pub enum ScriptError {
    /// The code raised or threw, with its message and traceback.
    #[error("{message}")]
    Raised { message: String, traceback: String },
    /// There is no such file, function or export.
    #[error("{0}")]
    NotFound(String),
    /// It took too long; the worker was ended.
    #[error("the call took longer than {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The interpreter could not be started or died.
    #[error("{0}")]
    Worker(String),
}

/// The pools of all languages; processes start on first use and end with this.
#[derive(Debug)]
pub struct Workers {
    python: pool::Pool,
    javascript: pool::Pool,
    ruby: pool::Pool,
}

impl Workers {
    /// Pools of at most `concurrency` processes for each language; code runs in `base`, with the variables of `env` on top of
    /// this process's own.
    pub fn new(base: PathBuf, env: Object, concurrency: usize) -> Self {
        Self {
            python: pool::Pool::new(Language::Python, base.clone(), env.clone(), concurrency),
            ruby: pool::Pool::new(Language::Ruby, base.clone(), env.clone(), concurrency),
            javascript: pool::Pool::new(Language::JavaScript, base, env, concurrency),
        }
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
}
