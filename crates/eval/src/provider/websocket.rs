//! `ws://…`, `wss://…` and `websocket`: a connection for each prompt, over which one message goes out and answers come back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, SinkExt, StreamExt};
use reqwest::{StatusCode, Upgraded, Url};
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{self, Message};

use super::http::code;
use super::http::error::HttpError;
use super::http::scope::Scope;
use super::settings;
use crate::calling::spec::ProviderSpec;
use crate::calling::transport;
use crate::calling::{Call, CallError, Provider};
use crate::javascript::JavaScriptError;
use crate::model::{Object, ProviderResponse};
use crate::script::Workers;
use crate::template::value::{to_number, to_text};

/// Reason why a service gave no answer.
#[derive(Debug, thiserror::Error)]
enum SocketError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("`{url}`: {reason}")]
    Url { url: String, reason: String },
    #[error("the websocket was not opened: {0}")]
    Connect(String),
    #[error("the websocket was not opened: the service answered with status {0}")]
    Refused(u16),
    #[error("the websocket was not opened: the service does not speak the protocol")]
    Handshake,
    #[error("the websocket failed: {0}")]
    Broken(#[from] tungstenite::Error),
    #[error("the service closed the websocket before it had answered")]
    Closed,
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error("`{name}` failed: {error}")]
    Code { name: &'static str, error: JavaScriptError },
    #[error("`streamResponse` must return a list of the answer so far and whether it is complete, not {0}")]
    Progress(String),
    #[error("`transformResponse` gave nothing for: {0}")]
    Nothing(String),
}

/// A service that is asked over a websocket.
pub struct WebSocket {
    id: String,
    url: Option<String>,
    workers: Arc<Workers>,
}

impl WebSocket {
    /// Whether an id is one of a websocket.
    pub fn is_meant(id: &str) -> bool {
        matches!(id, "websocket" | "ws" | "wss") || id.starts_with("ws:") || id.starts_with("wss:")
    }

    /// Returns what is missing of a configuration.
    pub fn problem(id: &str, config: &Object) -> Option<String> {
        if !id.contains("://") && !config.contains_key("url") {
            return Some(format!("the provider `{id}` needs `config.url`"));
        }
        let message = config.get("messageTemplate").and_then(Value::as_str).filter(|text| !text.is_empty());
        message.is_none().then(|| {
            format!("the provider `{id}` needs `config.messageTemplate`, the text that is sent, as in '{{{{prompt}}}}'")
        })
    }

    /// A provider whose id may be an address. Its functions in files are run by `workers`.
    pub fn new(spec: &ProviderSpec, workers: Arc<Workers>) -> Self {
        let url = spec.config.get("url").and_then(Value::as_str).map(str::to_owned);
        Self { id: spec.id.clone(), url, workers }
    }

    async fn ask(&self, call: &Call<'_>) -> Result<ProviderResponse, SocketError> {
        let config = call.config;
        let scope = Scope::new(call, &self.workers);
        let limit = config.get("timeoutMs").map(to_number).filter(|ms| *ms > 0.0);
        let limit = limit.map_or_else(transport::time_limit, |ms| Duration::from_millis(ms as u64));
        let render = |text: &str| scope.render(text).map_err(HttpError::from);
        let url = render(config.get("url").and_then(Value::as_str).unwrap_or(&self.id))?;
        let template = config.get("messageTemplate").and_then(Value::as_str).unwrap_or("{{prompt}}");
        let message = render(template)?;
        let started = Instant::now();
        let timed_out = |_| SocketError::TimedOut(limit);
        let mut socket = tokio::time::timeout(limit, connect(&url, config)).await.map_err(timed_out)??;
        socket.send(Message::text(message)).await?;
        let stream = config.get("streamResponse").and_then(Value::as_str);
        let mut so_far = json!({"error": "unknown error occurred"});
        let mut response = loop {
            let text = tokio::time::timeout(limit, next(&mut socket)).await.map_err(timed_out)??;
            let Some(code) = stream else { break self.received(config, &text).await? };
            let event = json!({"type": "message", "data": text});
            let arguments = [so_far, event, call.context.clone()];
            let value = self.run("streamResponse", code, "accumulator, data, context", &arguments).await?;
            let Some([now, is_complete]) = value.as_array().map(Vec::as_slice) else {
                return Err(SocketError::Progress(value.to_string()));
            };
            if crate::template::value::truthy(is_complete) {
                break code::answer(now.clone())?.ok_or(SocketError::Nothing(text))?;
            }
            so_far = now.clone();
        };
        // The answer is there; a service that does not close its end changes nothing about it.
        let _ = tokio::time::timeout(Duration::from_secs(1), socket.close(None)).await;
        response.latency_ms = Some(started.elapsed().as_millis() as f64);
        Ok(response)
    }

    /// Returns the answer that the first message is, or that `transformResponse` takes from it.
    async fn received(&self, config: &Object, text: &str) -> Result<ProviderResponse, SocketError> {
        let data = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
        let Some(code) = code::of_response(config) else {
            return Ok(ProviderResponse { output: Some(data), ..ProviderResponse::default() });
        };
        let value = self.run("transformResponse", code, "data", &[data]).await?;
        code::answer(value)?.ok_or_else(|| SocketError::Nothing(text.chars().take(500).collect()))
    }

    async fn run(
        &self,
        name: &'static str,
        code: &str,
        parameters: &str,
        arguments: &[Value],
    ) -> Result<Value, SocketError> {
        if code.starts_with("file://") {
            let value = self.workers.invoke(code, &["get_transform"], arguments.to_vec()).await;
            return Ok(value.map_err(HttpError::from)?);
        }
        code::evaluate(code, parameters, arguments).map_err(|error| SocketError::Code { name, error })
    }
}

/// Opens a websocket with the client of all providers, which knows proxies and authorities.
async fn connect(url: &str, config: &Object) -> Result<WebSocketStream<Upgraded>, SocketError> {
    let wrong = |reason: &str| SocketError::Url { url: url.to_owned(), reason: reason.to_owned() };
    let mut address = Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
    let scheme = match address.scheme() {
        "ws" | "http" => "http",
        "wss" | "https" => "https",
        _ => return Err(wrong("the address of a websocket begins with ws:// or wss://")),
    };
    address.set_scheme(scheme).map_err(|()| wrong("no address of a websocket"))?;
    let key = generate_key();
    let mut request = transport::client()?.get(address);
    for (name, value) in config.get("headers").and_then(Value::as_object).into_iter().flatten() {
        request = request.header(name, to_text(value));
    }
    let protocols = protocols(config);
    if !protocols.is_empty() {
        request = request.header("sec-websocket-protocol", protocols);
    }
    let request = request
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", &key);
    let failed = |error: reqwest::Error| SocketError::Connect(transport::reason(&error));
    let response = request.send().await.map_err(failed)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(SocketError::Refused(response.status().as_u16()));
    }
    let accepted = response.headers().get("sec-websocket-accept");
    if accepted.is_none_or(|accepted| accepted.as_bytes() != derive_accept_key(key.as_bytes()).as_bytes()) {
        return Err(SocketError::Handshake);
    }
    let upgraded = response.upgrade().await.map_err(failed)?;
    Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await)
}

/// The names of protocols that a client speaks, as a header has them.
fn protocols(config: &Object) -> String {
    let names: Vec<&str> = match config.get("protocols") {
        Some(Value::String(names)) => names.split(',').collect(),
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).flat_map(|one| one.split(',')).collect()
        }
        _ => Vec::new(),
    };
    let names: Vec<&str> = names.into_iter().map(str::trim).filter(|name| !name.is_empty()).collect();
    names.join(", ")
}

/// The next message of a service, as text.
async fn next(socket: &mut WebSocketStream<Upgraded>) -> Result<String, SocketError> {
    loop {
        match socket.next().await.ok_or(SocketError::Closed)?? {
            Message::Text(text) => return Ok(text.as_str().to_owned()),
            Message::Binary(bytes) => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Message::Close(_) => return Err(SocketError::Closed),
            // Answered below.
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
}

impl Provider for WebSocket {
    fn id(&self) -> &str {
        &self.id
    }

    fn shown_as(&self) -> BoxFuture<'_, Option<String>> {
        std::future::ready(self.url.clone()).boxed()
    }

    fn names_itself(&self) -> bool {
        true
    }

    fn renders_config(&self) -> bool {
        true
    }

    fn settled<'a>(&'a self, config: &'a Object) -> BoxFuture<'a, Result<Option<Object>, CallError>> {
        std::future::ready(settings::data(config, self.workers.base())).boxed()
    }

    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        async move { self.ask(call).await.unwrap_or_else(ProviderResponse::failed) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_websocket_needs_is_named() {
        let of = |id: &str, config: Value| WebSocket::problem(id, config.as_object().unwrap());
        assert!(of("ws://host", json!({})).unwrap().contains("messageTemplate"));
        assert!(of("websocket", json!({"messageTemplate": "x"})).unwrap().contains("config.url"));
        assert_eq!(of("wss://host", json!({"messageTemplate": "x"})), None);
        assert!(WebSocket::is_meant("ws://host") && !WebSocket::is_meant("wsx"));
    }

    #[test]
    fn protocols_are_one_header() {
        let of = |config: Value| protocols(config.as_object().unwrap());
        assert_eq!(of(json!({"protocols": ["a", "b, c"]})), "a, b, c");
        assert_eq!(of(json!({"protocols": " a ,"})), "a");
        assert_eq!(of(json!({})), "");
    }
}
