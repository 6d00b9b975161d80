//! JSON-RPC messages, as the protocol uses them.

use serde::Deserialize;
use serde_json::{Value, json};

/// The text is no JSON.
pub(crate) const PARSE_ERROR: i32 = -32700;
/// The JSON is no message of the protocol.
pub const INVALID_REQUEST: i32 = -32600;
/// The client has cancelled the request.
pub const CANCELLED: i32 = -32800;
/// The server has no answer.
pub(crate) const INTERNAL_ERROR: i32 = -32603;
/// The method is unknown.
pub(crate) const METHOD_NOT_FOUND: i32 = -32601;
/// The parameters of a method are wrong.
pub(crate) const INVALID_PARAMS: i32 = -32602;

/// A message of a client.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Message {
    /// Number or text that the answer repeats; a notification has none and gets no answer.
    #[serde(default)]
    pub id: Option<Value>,
    /// Name of the method; absent in answers to requests of a server, of which there are none.
    #[serde(default)]
    pub method: Option<String>,
    /// Parameters of the method.
    #[serde(default)]
    pub params: Value,
}

impl Message {
    /// Parses a message.
    ///
    /// # Errors
    /// The answer to send, if the text is no message.
    pub fn parse(text: &[u8]) -> Result<Self, Value> {
        let value: Value = serde_json::from_slice(text)
            .map_err(|error| failure(&Value::Null, PARSE_ERROR, &format!("invalid JSON: {error}")))?;
        let invalid = |reason: &str| failure(&value["id"], INVALID_REQUEST, reason);
        if value["jsonrpc"] != "2.0" {
            return Err(invalid("expected a JSON-RPC 2.0 message"));
        }
        if !value["id"].is_null() && !is_name(&value["id"]) {
            return Err(failure(&Value::Null, INVALID_REQUEST, "an id is a number or text, not too long"));
        }
        serde_json::from_value(value.clone()).map_err(|error| invalid(&error.to_string()))
    }

    /// The id of the request that a notification cancels.
    pub fn cancelled(&self) -> Option<&Value> {
        (self.method.as_deref() == Some("notifications/cancelled")).then(|| &self.params["requestId"])
    }
}

/// Whether a value names a request. It is repeated in answers, and in every report of progress.
pub(crate) fn is_name(value: &Value) -> bool {
    /// Maximum length, bytes.
    const MAX: usize = 1024;
    match value {
        Value::String(text) => text.len() <= MAX,
        value => value.is_number(),
    }
}

/// The answer to a request that succeeded.
pub(crate) fn success(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// The answer to a request that failed.
pub fn failure(id: &Value, code: i32, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

/// A notification that a request with a progress token gets while it runs.
pub(crate) fn progress(token: &Value, step: u64, message: &str) -> Value {
    let params = json!({ "progressToken": token, "progress": step, "message": message });
    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_gets_an_answer() {
        let code = |text: &str| Message::parse(text.as_bytes()).unwrap_err()["error"]["code"].clone();
        assert_eq!(code("{"), PARSE_ERROR);
        assert_eq!(code("[]"), INVALID_REQUEST);
        assert_eq!(code(r#"{"id":1,"method":"ping"}"#), INVALID_REQUEST);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#), INVALID_REQUEST);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":7}"#), INVALID_REQUEST);
        let long = json!({ "jsonrpc": "2.0", "id": "x".repeat(2000), "method": "ping" }).to_string();
        assert_eq!(code(&long), INVALID_REQUEST);
        assert!(Message::parse(long.replace(&"x".repeat(1000), "").as_bytes()).is_ok());
    }

    #[test]
    fn a_cancellation_names_its_request() {
        let text = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#;
        assert_eq!(Message::parse(text).unwrap().cancelled(), Some(&json!("a")));
    }
}
