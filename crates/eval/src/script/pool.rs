//! Processes kept between calls.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::process::Process;
use super::{EntryPoint, Language, ScriptCall, ScriptError, ScriptReply};
use crate::reading::Env;

/// The processes of one language.
#[derive(Debug)]
pub(super) struct Pool {
    language: Language,
    directory: PathBuf,
    env: Env,
    slots: Semaphore,
    // With the program each runs; the last one used is the next, so that few stay busy and warm.
    idle: Mutex<Vec<(String, Process)>>,
}

impl Pool {
    pub(super) fn new(language: Language, directory: PathBuf, env: Env, size: usize) -> Self {
        Self { language, directory, env, slots: Semaphore::new(size.max(1)), idle: Mutex::default() }
    }

    pub(super) async fn call(&self, call: ScriptCall) -> Result<ScriptReply, ScriptError> {
        let _slot = self.slots.acquire().await.map_err(|error| ScriptError::Worker(error.to_string()))?;
        let request = request(&call);
        let (program, mut process) = match self.take(&call) {
            Some(found) => found,
            None => self.start(call.interpreter.as_deref()).await?,
        };
        let result = process.call(&request, call.time_limit).await;
        let alive = !matches!(result, Err(ScriptError::TimedOut(_) | ScriptError::Worker(_)));
        if alive && !call.isolated {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((program, process));
        }
        result
    }

    fn take(&self, call: &ScriptCall) -> Option<(String, Process)> {
        if call.isolated {
            return None;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |program: &str| call.interpreter.as_deref().is_none_or(|wanted| wanted == program);
        let at = idle.iter().rposition(|(program, _)| fits(program))?;
        Some(idle.remove(at))
    }

    async fn start(&self, interpreter: Option<&str>) -> Result<(String, Process), ScriptError> {
        let programs = match interpreter {
            Some(program) => vec![program.to_owned()],
            None => self.programs(),
        };
        let mut first = None;
        for program in programs {
            match Process::start(self.language, &program, &self.directory, self.env.own()).await {
                Ok(process) => return Ok((program, process)),
                Err(error) => first = first.or(Some(error)),
            }
        }
        let (name, hint) = match self.language {
            Language::Python => ("Python", "set PROMPTFOO_PYTHON to an interpreter"),
            Language::Ruby => ("Ruby", "install Ruby 3.1 or newer, or set PROMPTFOO_RUBY to its interpreter"),
            Language::JavaScript => ("JavaScript", "install Node 20 or newer"),
        };
        let why = first.map_or_else(String::new, |error| error.to_string());
        Err(ScriptError::Worker(format!("cannot run {name} code: {why}; {hint}")))
    }

    /// Programs to try, in order.
    fn programs(&self) -> Vec<String> {
        let set = |name: &str| match self.env.own().get(name) {
            Some(Value::String(text)) => Some(text.clone()),
            _ => std::env::var(name).ok().filter(|text| !text.is_empty()),
        };
        match self.language {
            Language::Python => match set("PROMPTFOO_PYTHON") {
                Some(program) => vec![program],
                None => vec!["python".to_owned(), "python3".to_owned()],
            },
            Language::Ruby => vec![set("PROMPTFOO_RUBY").unwrap_or_else(|| "ruby".to_owned())],
            Language::JavaScript => vec!["node".to_owned()],
        }
    }
}

fn request(call: &ScriptCall) -> Value {
    let arguments = &call.arguments;
    match &call.entry {
        EntryPoint::Function { path, name, default } => {
            json!({"op": "function", "path": path, "name": name, "default": default, "arguments": arguments})
        }
        // Both languages get names as a list or one name, whichever their host reads.
        EntryPoint::Provider { path, name, default, options, set } => match call.language {
            Language::Python | Language::Ruby => {
                json!({"op": "provider", "path": path, "name": name, "default": [default], "arguments": arguments})
            }
            Language::JavaScript => json!({
                "op": "provider", "path": path, "name": name, "default": default, "options": options, "set": set,
                "arguments": arguments
            }),
        },
        EntryPoint::Configuration { path } => {
            json!({"op": "configuration", "path": path, "arguments": arguments})
        }
        EntryPoint::Tests { path } => json!({"op": "tests", "path": path, "arguments": arguments}),
        EntryPoint::Inline { code, parameters } => {
            json!({"op": "inline", "code": code, "parameters": parameters, "arguments": arguments})
        }
    }
}
