//! Tools that are run for models: those of servers of the Model Context Protocol (`mcp`), and functions of the user
//! (`functionToolCallbacks`).

pub mod shape;

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::mcp::{Connections, McpError, content};
use crate::calling::CallError;
use crate::javascript;
use crate::model::Object;
use crate::script::inline::{as_lines, needs_node};
use crate::script::{EntryPoint, Language, ScriptCall, ScriptError, Workers};
use crate::template::value::to_text;

/// The setting that names functions of the user.
const CALLBACKS: &str = "functionToolCallbacks";

/// A call of a tool that a model asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The name of the tool.
    pub name: String,
    /// The arguments, as the service has them: a map, or the text of one.
    pub arguments: Value,
    /// The call as it is in the reply.
    pub raw: Value,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolOutcome {
    /// A tool of a server returned this text.
    Result(String),
    /// A tool of a server failed with this text.
    Error(String),
    /// A function of the user returned this text.
    Returned(String),
    /// A function of the user failed.
    Failed,
    /// Nothing here has a tool of the name.
    Unknown,
}

impl ToolOutcome {
    /// The text that stands for the call in an answer, where there is one.
    pub fn shown(&self, name: &str) -> Option<String> {
        match self {
            Self::Result(text) => Some(format!("MCP Tool Result ({name}): {text}")),
            Self::Error(text) => Some(format!("MCP Tool Error ({name}): {text}")),
            Self::Returned(text) => Some(text.clone()),
            Self::Failed | Self::Unknown => None,
        }
    }
}

/// Returns the answer that outcomes are, if one of them is: their texts, one below the other. A function that failed leaves the calls as
/// the answer.
pub fn joined(calls: &[(ToolCall, ToolOutcome)]) -> Option<String> {
    if calls.iter().any(|(_, outcome)| *outcome == ToolOutcome::Failed) {
        return None;
    }
    let texts: Vec<String> = calls.iter().filter_map(|(call, outcome)| outcome.shown(&call.name)).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// The tools that one model has.
pub struct Tools {
    workers: Arc<Workers>,
    /// Connected for the first prompt, and for all of them.
    servers: OnceCell<Connections>,
}

impl Tools {
    /// Tools whose programs and functions run in the directory of the suite.
    pub fn new(workers: Arc<Workers>) -> Self {
        Self { workers, servers: OnceCell::new() }
    }

    /// Whether a configuration has tools that are run here.
    pub fn are_wanted(config: &Object) -> bool {
        block(config).is_some() || config.get(CALLBACKS).is_some_and(Value::is_object)
    }

    /// Returns the tools of the servers that a configuration names, connecting to them first.
    ///
    /// # Errors
    /// An error if a server cannot be reached.
    pub async fn listed(&self, config: &Object) -> Result<Vec<Value>, CallError> {
        let Some(block) = block(config) else { return Ok(Vec::new()) };
        let connected = self.servers.get_or_try_init(|| Connections::open(block, &self.workers)).await;
        let connected = connected.map_err(|error| CallError::Tools(error.to_string()))?;
        Ok(connected.tools().cloned().collect())
    }

    /// Whether a connected server has a tool.
    pub fn has(&self, tool: &str) -> bool {
        self.servers.get().is_some_and(|servers| servers.has(tool))
    }

    /// Runs a call.
    pub async fn run(&self, config: &Object, call: &ToolCall) -> ToolOutcome {
        if let Some(servers) = self.servers.get().filter(|servers| servers.has(&call.name)) {
            let Some(arguments) = map_of(&call.arguments) else {
                return ToolOutcome::Error("the arguments are not JSON".to_owned());
            };
            return match servers.call(&call.name, &arguments).await {
                Err(McpError::Refused { code, message }) => {
                    ToolOutcome::Error(format!("MCP error {code}: {message}"))
                }
                Err(error) => ToolOutcome::Error(error.to_string()),
                Ok(result) if result.get("isError") == Some(&Value::Bool(true)) => {
                    let text = content(&result);
                    ToolOutcome::Error(if text.is_empty() {
                        "the tool failed without a reason".to_owned()
                    } else {
                        text
                    })
                }
                Ok(result) => ToolOutcome::Result(content(&result)),
            };
        }
        let Some(callback) = config.get(CALLBACKS).and_then(|callbacks| callbacks.get(&call.name)) else {
            return ToolOutcome::Unknown;
        };
        match self.call_back(callback, &call.arguments).await {
            Ok(Value::Null) => ToolOutcome::Returned(String::new()),
            Ok(value) => ToolOutcome::Returned(to_text(&value)),
            Err(error) => {
                tracing::warn!(function = %call.name, %error, "a function of the configuration failed");
                ToolOutcome::Failed
            }
        }
    }

    /// Calls a function of the user with the text of the arguments.
    async fn call_back(&self, callback: &Value, arguments: &Value) -> Result<Value, CallbackError> {
        let code = callback.as_str().ok_or(CallbackError::NotCode)?;
        let arguments = vec![match arguments {
            Value::String(_) => arguments.clone(),
            Value::Null => json!("{}"),
            other => json!(other.to_string()),
        }];
        if code.starts_with("file://") {
            return Ok(self.workers.invoke(code, &["call"], arguments).await?);
        }
        if !needs_node(code) {
            let code = code.to_owned();
            let ran =
                tokio::task::spawn_blocking(move || javascript::call(&format!("({code})"), &arguments)).await;
            return match ran {
                Ok(value) => Ok(value.map_err(ScriptError::from)?),
                Err(_) => Err(ScriptError::EngineStopped.into()),
            };
        }
        let code = as_lines(&format!("return ({code})(args)"));
        let entry = EntryPoint::Inline { code, parameters: &["args"] };
        Ok(self.workers.call(ScriptCall::new(Language::JavaScript, entry, arguments)).await?.value)
    }
}

/// Reason why a function of the user gave no value.
#[derive(Debug, thiserror::Error)]
enum CallbackError {
    #[error("a function is text of JavaScript, or in a file")]
    NotCode,
    #[error(transparent)]
    Script(#[from] ScriptError),
}

/// The block `mcp` of a configuration, unless it is switched off.
fn block(config: &Object) -> Option<&Object> {
    let block = config.get("mcp")?.as_object()?;
    (block.get("enabled") == Some(&Value::Bool(true))).then_some(block)
}

/// The map that arguments are; an empty one for arguments that are missing or something else. Nothing for text that is not JSON.
fn map_of(arguments: &Value) -> Option<Value> {
    let value = match arguments {
        Value::String(text) if text.is_empty() => Value::Null,
        Value::String(text) => serde_json::from_str(text).ok()?,
        other => other.clone(),
    };
    Some(if value.is_object() { value } else { json!({}) })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::reading::Env;

    fn call(name: &str, arguments: Value) -> ToolCall {
        ToolCall { name: name.to_owned(), arguments, raw: Value::Null }
    }

    #[tokio::test]
    async fn functions_of_the_configuration_get_the_text_of_the_arguments() {
        let tools = Tools::new(Arc::new(Workers::new(Path::new("/").to_owned(), Env::default(), 1)));
        let config = json!({CALLBACKS: {
            "add": "async (args) => { const { a, b } = JSON.parse(args); return a + b }",
            "describe": "(args) => ({ got: typeof args })",
            "nothing": "() => undefined",
            "broken": "() => { throw new Error('no') }",
        }});
        let config = config.as_object().unwrap();
        let run = async |name: &str, arguments: Value| tools.run(config, &call(name, arguments)).await;
        let returned = |text: &str| ToolOutcome::Returned(text.to_owned());
        assert_eq!(run("add", json!("{\"a\": 1, \"b\": 2}")).await, returned("3"));
        assert_eq!(run("add", json!({"a": 1, "b": 2})).await, returned("3"));
        assert_eq!(run("describe", Value::Null).await, returned("{\"got\":\"string\"}"));
        assert_eq!(run("nothing", json!({})).await, returned(""));
        assert_eq!(run("broken", json!({})).await, ToolOutcome::Failed);
        assert_eq!(run("other", json!({})).await, ToolOutcome::Unknown);
    }

    #[test]
    fn outcomes_become_one_answer_unless_a_function_failed() {
        let of = |outcomes: &[ToolOutcome]| {
            let calls: Vec<_> =
                outcomes.iter().map(|outcome| (call("t", json!({})), outcome.clone())).collect();
            joined(&calls)
        };
        let (result, returned) = (ToolOutcome::Result("1".to_owned()), ToolOutcome::Returned("2".to_owned()));
        assert_eq!(
            of(&[result.clone(), ToolOutcome::Unknown, returned.clone()]).as_deref(),
            Some("MCP Tool Result (t): 1\n2")
        );
        assert_eq!(of(&[ToolOutcome::Error("no".to_owned())]).as_deref(), Some("MCP Tool Error (t): no"));
        assert_eq!(of(&[returned, ToolOutcome::Failed]), None);
        assert_eq!(of(&[ToolOutcome::Unknown]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn arguments_are_maps() {
        assert_eq!(map_of(&json!("{\"a\": 1}")), Some(json!({"a": 1})));
        for empty in [json!(""), json!("[1]"), json!(null), json!(3)] {
            assert_eq!(map_of(&empty), Some(json!({})));
        }
        assert_eq!(map_of(&json!("{")), None);
    }
}
