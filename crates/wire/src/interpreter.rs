//! Bodies and stream lines of the code interpreter (contract: interpreter, sections 1, 3 and 5).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Body of `POST /execute`. Unknown keys are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionRequest {
    /// Code to run; may be empty.
    pub code: String,
    /// Id of the context to run the code in. Not together with `language`.
    #[serde(default)]
    pub context_id: Option<String>,
    /// Language whose default context runs the code.
    #[serde(default)]
    pub language: Option<String>,
    /// Variables for this execution only.
    #[serde(default)]
    pub env_vars: Option<BTreeMap<String, String>>,
}

impl ExecutionRequest {
    /// A request that runs code in the default context of Python.
    pub fn new(code: impl Into<String>) -> Self {
        Self { code: code.into(), ..Self::default() }
    }

    /// Sets the language, whose default context runs the code.
    #[must_use]
    pub fn language(self, language: impl Into<String>) -> Self {
        Self { language: Some(language.into()), ..self }
    }

    /// Sets the context, by its id.
    #[must_use]
    pub fn context(self, id: impl Into<String>) -> Self {
        Self { context_id: Some(id.into()), ..self }
    }

    /// Adds a variable for this execution.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env_vars.get_or_insert_default().insert(name.into(), value.into());
        self
    }
}

/// Body of `POST /contexts`. Unknown keys are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateContext {
    /// Directory the context starts in; `/home/user` when unset.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Language of the context; Python when unset.
    #[serde(default)]
    pub language: Option<String>,
}

/// A context as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Id of the context; a UUID.
    pub id: String,
    /// Normalised name of the language.
    pub language: String,
    /// Directory that the context was created with, whether or not it exists.
    pub cwd: String,
}

/// An event of an execution: a line of the answer to `POST /execute`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The kernel has accepted the code.
    NumberOfExecutions {
        /// Number of the execution in its context.
        execution_count: u64,
    },
    /// Text written to standard output.
    Stdout(Output),
    /// Text written to standard error.
    Stderr(Output),
    /// A value or something displayed.
    Result(Box<ResultData>),
    /// The code failed, or could not be run to its end.
    Error(ExecutionError),
    /// Nothing was written for a while.
    Keepalive,
    /// Last line of a complete stream.
    EndOfExecution,
}

/// The text of a stream event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Text as written, line ends included.
    pub text: String,
    /// Time in ISO 8601 with microseconds and offset, which Python clients require.
    pub timestamp: String,
}

/// The error of an execution. Clients require all members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionError {
    /// Class name of the exception.
    pub name: String,
    /// Message of the exception.
    pub value: String,
    /// Traceback, whose frames are joined without separators.
    pub traceback: String,
}

/// The representations of a result; absent ones are left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResultData {
    /// Representation as `text/plain`, without enclosing quotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Value>,
    /// Representation as `text/html`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<Value>,
    /// Representation as `text/markdown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub markdown: Option<Value>,
    /// Representation as `image/svg+xml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub svg: Option<Value>,
    /// Representation as `image/png`, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub png: Option<Value>,
    /// Representation as `image/jpeg`, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jpeg: Option<Value>,
    /// Representation as `application/pdf`, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pdf: Option<Value>,
    /// Representation as `text/latex`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latex: Option<Value>,
    /// Representation as `application/json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<Value>,
    /// Representation as `application/javascript`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub javascript: Option<Value>,
    /// Columns of a data frame, as `e2b/data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// Data that a figure shows, as `e2b/chart`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<Value>,
    /// All other representations by MIME type.
    #[serde(default)]
    pub extra: Map<String, Value>,
    /// Whether the value is that of the last expression.
    pub is_main_result: bool,
}

impl ResultData {
    /// Sorts a MIME bundle into the members that clients know (contract: interpreter, section 5).
    pub fn from_bundle(bundle: Map<String, Value>, is_main_result: bool) -> Self {
        let mut result = Self { is_main_result, ..Self::default() };
        for (mime, value) in bundle {
            let member = match mime.as_str() {
                "text/plain" => {
                    result.text = Some(without_quotes(value));
                    continue;
                }
                "text/html" => &mut result.html,
                "text/markdown" => &mut result.markdown,
                "image/svg+xml" => &mut result.svg,
                "image/png" => &mut result.png,
                "image/jpeg" => &mut result.jpeg,
                "application/pdf" => &mut result.pdf,
                "text/latex" => &mut result.latex,
                "application/json" => &mut result.json,
                "application/javascript" => &mut result.javascript,
                "e2b/data" => &mut result.data,
                "e2b/chart" => &mut result.chart,
                _ => {
                    result.extra.insert(mime, value);
                    continue;
                }
            };
            *member = Some(value);
        }
        result
    }
}

/// Removes the quotes around the representation of a string, but keeps its escapes.
fn without_quotes(value: Value) -> Value {
    let Value::String(text) = value else { return value };
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return Value::String(inner.to_owned());
        }
    }
    Value::String(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bundle(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn events_carry_their_type_and_members_in_order() {
        let line = |event: &Event| serde_json::to_string(event).unwrap();
        assert_eq!(
            line(&Event::NumberOfExecutions { execution_count: 3 }),
            r#"{"type":"number_of_executions","execution_count":3}"#
        );
        assert_eq!(line(&Event::EndOfExecution), r#"{"type":"end_of_execution"}"#);
        let output = Output { text: "a\n".into(), timestamp: "2026-01-02T03:04:05.678901+00:00".into() };
        assert_eq!(
            line(&Event::Stdout(output)),
            r#"{"type":"stdout","text":"a\n","timestamp":"2026-01-02T03:04:05.678901+00:00"}"#
        );
        let result = ResultData::from_bundle(bundle(json!({"text/plain": "'hi'", "x/y": 1})), true);
        assert_eq!(
            line(&Event::Result(Box::new(result))),
            r#"{"type":"result","text":"hi","extra":{"x/y":1},"is_main_result":true}"#
        );
    }

    #[test]
    fn only_a_pair_of_equal_quotes_is_removed() {
        let shown = |text: &str| without_quotes(json!(text)).as_str().unwrap().to_owned();
        assert_eq!(shown(r#""it's""#), "it's");
        assert_eq!(shown(r"'a\nb'"), r"a\nb");
        assert_eq!(shown("'a\""), "'a\"");
        assert_eq!(shown("'"), "'");
        assert_eq!(shown("''"), "");
    }
}
