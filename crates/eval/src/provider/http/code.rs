//! Code of the configuration that makes requests and reads replies: expressions, functions, and files.

use serde_json::{Value, json};

use super::error::HttpError;
use crate::calling::Call;
use crate::calling::transport::Reply;
use crate::javascript::{self, JavaScriptError};
use crate::model::{Object, ProviderResponse};
use crate::script::Workers;
use crate::script::inline::inline_body;

/// Returns the text or object that `transformRequest` makes of a prompt: a function, a body with `return`, an expression, or a file.
/// `vars` are those that the templates of the request see.
pub async fn sent(code: &str, call: &Call<'_>, vars: &Object, workers: &Workers) -> Result<Value, HttpError> {
    let arguments = vec![json!(call.prompt), json!(vars), call.context.clone()];
    if code.starts_with("file://") {
        return Ok(workers.invoke(code, &["get_transform"], arguments).await?);
    }
    evaluate(code, "prompt, vars, context", &arguments).map_err(HttpError::RequestTransform)
}

/// Whether a service did what it was asked, for `validateStatus`. Without it every status is an answer: tests may be about a refusal.
pub async fn is_good(config: &Object, status: u16, workers: &Workers) -> Result<bool, HttpError> {
    let value = match config.get("validateStatus").and_then(Value::as_str) {
        Some(code) if code.starts_with("file://") => {
            workers.invoke(code, &["validate_status"], vec![json!(status)]).await?
        }
        Some(code) => {
            let function = if code.contains("=>") || code.trim().starts_with("function") {
                format!("({code})")
            } else {
                format!("(status) => {{ {} }}", inline_body(code))
            };
            javascript::call(&function, &[json!(status)])?
        }
        None => return Ok(true),
    };
    Ok(crate::template::value::truthy(&value))
}

/// Returns what a parser of sessions finds in a reply: an expression over `data`, a function, or a file.
pub async fn session(
    code: &str,
    headers: &Object,
    body: Value,
    workers: &Workers,
) -> Result<Value, HttpError> {
    let arguments = vec![json!({"headers": headers, "body": body})];
    if code.starts_with("file://") {
        return Ok(workers.invoke(code, &["get_session_id"], arguments).await?);
    }
    let function =
        if is_function(code.trim()) { code.trim().to_owned() } else { format!("(data) => (\n{code}\n)") };
    javascript::call(&function, &arguments).map_err(HttpError::Session)
}

/// The code that takes the answer from a reply: `transformResponse`, or its older name.
pub fn of_response(config: &Object) -> Option<&str> {
    ["transformResponse", "responseParser"].iter().find_map(|key| config.get(*key)?.as_str())
}

/// Returns the answer that `transformResponse` takes from a reply.
pub async fn received(
    code: &str,
    parsed: Option<Value>,
    reply: &Reply,
    took_ms: f64,
    vars: &Object,
    workers: &Workers,
) -> Result<ProviderResponse, HttpError> {
    let response = json!({
        "data": reply.text, "status": reply.status, "statusText": reply.status_text(), "headers": headers(reply),
        "cached": false, "latencyMs": took_ms,
    });
    let context = json!({"response": response, "vars": vars});
    let arguments = vec![parsed.unwrap_or(Value::Null), json!(reply.text), context];
    let value = if code.starts_with("file://") {
        workers.invoke(code, &["get_transform"], arguments).await?
    } else {
        let trimmed = code.trim();
        let function = if is_function(trimmed) {
            trimmed.to_owned()
        } else {
            format!("(json, text, context) => {{ {}\n}}", inline_body(trimmed))
        };
        javascript::call(&function, &arguments).map_err(HttpError::Transform)?
    };
    answer(value)?.ok_or_else(|| HttpError::Nothing(reply.text.chars().take(500).collect()))
}

/// Returns the answer that the value of a transform is: an object with `output` or `error` says more than the output.
pub fn answer(value: Value) -> Result<Option<ProviderResponse>, HttpError> {
    Ok(match value {
        Value::Null => None,
        Value::Object(map) if map.contains_key("output") || map.contains_key("error") => {
            Some(serde_json::from_value(Value::Object(map)).map_err(HttpError::Shape)?)
        }
        value => Some(ProviderResponse { output: Some(value), ..ProviderResponse::default() }),
    })
}

/// Runs a function, a body with `return`, or an expression.
pub fn evaluate(code: &str, parameters: &str, arguments: &[Value]) -> Result<Value, JavaScriptError> {
    let code = code.trim();
    let function = if is_function(code) {
        code.to_owned()
    } else if code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "return") {
        format!("({parameters}) => {{ {code}\n}}")
    } else {
        format!("({parameters}) => (\n{code}\n)")
    };
    javascript::call(&function, arguments)
}

/// Whether code is a function, and not what is to be in one.
fn is_function(code: &str) -> bool {
    code.starts_with('(') && code.contains("=>") || code.starts_with("function") || code.starts_with("async")
}

/// The headers of a reply, by their names.
pub fn headers(reply: &Reply) -> Object {
    reply.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
}
