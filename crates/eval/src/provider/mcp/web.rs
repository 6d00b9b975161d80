//! Servers at an address: streamable HTTP.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Response;
use serde_json::{Value, json};

use super::{McpError, check};
use crate::calling::transport::{self, Request};
use crate::model::Object;
use crate::provider::http::auth::{self, Tokens};
use crate::provider::http::scope::Scope;
use crate::script::Workers;
use crate::template::Templates;
use crate::template::value::to_text;

/// Bytes of an answer that are read.
pub(super) const MAX_BYTES: usize = 64 * 1024 * 1024;

/// A server at an address.
pub struct Web {
    url: String,
    headers: Object,
    auth: Object,
    env: Object,
    base: Arc<std::path::Path>,
    tokens: Tokens,
    next: AtomicU64,
    /// The session that the server began.
    session: Mutex<Option<String>>,
    version: Option<String>,
}

impl Web {
    /// A server that is not connected to yet.
    pub fn new(settings: &Object, workers: &Workers) -> Self {
        let mut config = Object::new();
        if let Some(auth) = check::auth(settings) {
            config.insert("auth".to_owned(), Value::Object(auth));
        }
        Self {
            url: settings.get("url").map(to_text).unwrap_or_default(),
            headers: settings.get("headers").and_then(Value::as_object).cloned().unwrap_or_default(),
            auth: config,
            env: workers.env().all(),
            base: workers.base().into(),
            tokens: Tokens::default(),
            next: AtomicU64::new(1),
            session: Mutex::default(),
            version: None,
        }
    }

    /// Names the version that both sides speak.
    pub fn speak(&mut self, version: &str) {
        self.version = Some(version.to_owned());
    }

    /// Returns the answer to a request.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, McpError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let response = self.post(method, &message).await?;
        if let Some(session) = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()) {
            *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.to_owned());
        }
        answer(response, id).await
    }

    /// Sends a message that gets no answer.
    pub async fn notify(&self, message: &Value) -> Result<(), McpError> {
        let method = message.get("method").and_then(Value::as_str).unwrap_or_default();
        self.post(method, message).await.map(drop)
    }

    /// Returns the address of the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    async fn post(&self, method: &str, message: &Value) -> Result<Response, McpError> {
        self.post_to(&self.url, method, message).await
    }

    /// Sends a message to an address of the server.
    pub async fn post_to(&self, url: &str, method: &str, message: &Value) -> Result<Response, McpError> {
        let request = Request::json(url.to_owned(), message);
        self.send(request.header("accept", "application/json, text/event-stream"), method).await
    }

    /// Opens the stream of the server's events.
    pub async fn stream(&self) -> Result<Response, McpError> {
        let request = Request { method: "GET".to_owned(), url: self.url.clone(), ..Request::default() };
        self.send(request.header("accept", "text/event-stream"), "the stream of events").await
    }

    async fn send(&self, mut request: Request, asked: &str) -> Result<Response, McpError> {
        let mut scope =
            Scope { vars: self.env.clone(), templates: Templates::new(self.env.clone()), base: &self.base };
        for (name, value) in &self.headers {
            request = request.header(name, to_text(value));
        }
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(session) = session {
            request = request.header("mcp-session-id", session);
        }
        if let Some(version) = &self.version {
            request = request.header("mcp-protocol-version", version);
        }
        if let Some(auth) = self.auth.get("auth").and_then(Value::as_object)
            && auth.get("type").and_then(Value::as_str) == Some("oauth")
        {
            let token = self.tokens.get(auth, &scope, None).await?;
            scope.vars.insert("token".to_owned(), json!(token));
        }
        let request = auth::authorize(request, &self.auth, &scope)?;
        let client = transport::client()?;
        let mut builder = match request.body {
            Some(body) => client.post(&request.url).body(body),
            None => client.get(&request.url),
        };
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        let response =
            builder.send().await.map_err(|error| McpError::Connection(transport::reason(&error)))?;
        if !response.status().is_success() {
            let status = response.status().as_u16();
            let start = response.text().await.unwrap_or_default().chars().take(500).collect();
            return Err(McpError::Status { method: asked.to_owned(), status, start });
        }
        Ok(response)
    }
}

/// Reads the answer with this id: the body, or an event of a stream, which is not read further.
async fn answer(mut response: Response, id: u64) -> Result<Value, McpError> {
    let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_stream = kind.starts_with("text/event-stream");
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        let chunk =
            response.chunk().await.map_err(|error| McpError::Connection(transport::reason(&error)))?;
        let is_end = chunk.is_none();
        bytes.extend_from_slice(&chunk.unwrap_or_default());
        if bytes.len() > MAX_BYTES {
            return Err(McpError::Connection(format!("the answer is longer than {MAX_BYTES} bytes")));
        }
        if is_stream {
            while let Some((_, data)) = event(&mut bytes, is_end) {
                if let Some(message) = with_id(&data, id) {
                    return Ok(message);
                }
            }
        }
        if is_end {
            break;
        }
    }
    with_id(&String::from_utf8_lossy(&bytes), id).ok_or(McpError::Closed)
}

fn with_id(text: &str, id: u64) -> Option<Value> {
    let message: Value = serde_json::from_str(text).ok()?;
    let mut messages = match message {
        Value::Array(messages) => messages,
        one => vec![one],
    };
    let is_meant = |message: &Value| message.get("id") == Some(&json!(id)) && message.get("method").is_none();
    let at = messages.iter().position(is_meant)?;
    Some(messages.swap_remove(at))
}

/// Takes the first event that is complete off the bytes of a stream: its name and its data. At the end of the stream, what is left is one.
pub(super) fn event(bytes: &mut Vec<u8>, is_end: bool) -> Option<(String, String)> {
    let ends = |at: usize| {
        let rest = &bytes[at..];
        [&b"\r\n\r\n"[..], b"\n\n", b"\r\r"].into_iter().find(|end| rest.starts_with(end)).map(<[u8]>::len)
    };
    let found = (0..bytes.len()).find_map(|at| ends(at).map(|length| (at, length)));
    let (at, length) = match found {
        Some(found) => found,
        None if is_end && !bytes.is_empty() => (bytes.len(), 0),
        None => return None,
    };
    let text = String::from_utf8_lossy(&bytes[..at]).replace("\r\n", "\n").replace('\r', "\n");
    bytes.drain(..at + length);
    let field = |name: &'static str| {
        let values = text.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(':'));
        values.map(|value| value.strip_prefix(' ').unwrap_or(value)).collect::<Vec<_>>()
    };
    Some((field("event").last().copied().unwrap_or_default().to_owned(), field("data").join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_off_a_stream_as_they_are_complete() {
        let mut bytes = b": hello\n\nevent: message\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\ndata: x".to_vec();
        let of = |name: &str, data: &str| Some((name.to_owned(), data.to_owned()));
        assert_eq!(event(&mut bytes, false), of("", ""));
        assert_eq!(event(&mut bytes, false), of("message", "{\"a\":\n1}"));
        assert_eq!(event(&mut bytes, false), None);
        assert_eq!(event(&mut bytes, true), of("", "x"));
        assert_eq!(event(&mut bytes, true), None);
    }

    #[test]
    fn an_answer_is_found_by_its_id() {
        let text = r#"[{"id": 1, "result": 1}, {"id": 2, "method": "ping"}, {"id": 2, "result": 2}]"#;
        assert_eq!(with_id(text, 2).unwrap()["result"], 2);
        assert_eq!(with_id(r#"{"id": 3, "result": 3}"#, 2), None);
        assert_eq!(with_id("nothing", 2), None);
    }
}
