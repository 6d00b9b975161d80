//! Servers at an address that speak the transport before streamable HTTP: answers are events of one stream, and the stream names the
//! address that requests are sent to.

use std::sync::Arc;

use reqwest::{Response, Url};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::McpError;
use super::waiting::Waiting;
use super::web::{MAX_BYTES, Web, event};
use crate::calling::transport;

/// A server whose stream is open. It closes when this is dropped.
pub struct Sse {
    line: Line,
    waiting: Waiting,
    reader: JoinHandle<()>,
}

/// The address to which messages for the server are sent.
#[derive(Clone)]
struct Line {
    web: Arc<Web>,
    address: Arc<str>,
}

impl Line {
    async fn send(&self, message: &Value) -> Result<(), McpError> {
        let method = message.get("method").and_then(Value::as_str).unwrap_or("the answer");
        self.web.post_to(&self.address, method, message).await.map(drop)
    }
}

impl Sse {
    /// Opens the stream of a server, and waits for the address that it names.
    pub async fn open(web: Web) -> Result<Self, McpError> {
        let mut stream = Stream { response: web.stream().await?, bytes: Vec::new() };
        let address = loop {
            match stream.next().await? {
                Some((name, address)) if name == "endpoint" => break absolute(web.url(), address.trim())?,
                Some(_) => {}
                None => return Err(McpError::Closed),
            }
        };
        let line = Line { web: Arc::new(web), address: address.into() };
        let waiting = Waiting::new();
        let reader = tokio::spawn(read(stream, waiting.clone(), line.clone()));
        Ok(Self { line, waiting, reader })
    }

    /// Returns the answer to a request.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, McpError> {
        let (request, answer) = self.waiting.begin(method, params)?;
        self.send(&request).await?;
        answer.await.map_err(|_| McpError::Closed)
    }

    /// Sends a message.
    pub async fn send(&self, message: &Value) -> Result<(), McpError> {
        self.line.send(message).await
    }
}

impl Drop for Sse {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// The address that a stream names, which must be of the host that the stream is of: requests carry credentials.
fn absolute(stream: &str, address: &str) -> Result<String, McpError> {
    let foreign = || McpError::Address(address.to_owned());
    let base = Url::parse(stream).map_err(|_| foreign())?;
    let whole = base.join(address).map_err(|_| foreign())?;
    if whole.origin() == base.origin() { Ok(whole.into()) } else { Err(foreign()) }
}

/// The events of an answer that does not end.
struct Stream {
    response: Response,
    bytes: Vec<u8>,
}

impl Stream {
    /// Returns the name and the data of the next event; nothing at the end of the stream.
    async fn next(&mut self) -> Result<Option<(String, String)>, McpError> {
        loop {
            if let Some(found) = event(&mut self.bytes, false) {
                return Ok(Some(found));
            }
            let chunk = self.response.chunk().await;
            match chunk.map_err(|error| McpError::Connection(transport::reason(&error)))? {
                Some(chunk) => self.bytes.extend_from_slice(&chunk),
                None => return Ok(None),
            }
            if self.bytes.len() > MAX_BYTES {
                return Err(McpError::Connection(format!("an event is longer than {MAX_BYTES} bytes")));
            }
        }
    }
}

/// Hands answers to those who wait for them, and answers what the server asks, until the stream ends.
async fn read(mut stream: Stream, waiting: Waiting, line: Line) {
    while let Ok(Some((_, data))) = stream.next().await {
        let Ok(message) = serde_json::from_str::<Value>(&data) else { continue };
        if let Some(reply) = waiting.hand_over(message) {
            let _ = line.send(&reply).await;
        }
    }
    waiting.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_to_the_host_of_the_stream_only() {
        let of = |address: &str| absolute("http://127.0.0.1:80/sse?key=1", address).ok();
        assert_eq!(of("/messages?session=1").as_deref(), Some("http://127.0.0.1/messages?session=1"));
        assert_eq!(of("messages").as_deref(), Some("http://127.0.0.1/messages"));
        assert_eq!(of("http://127.0.0.1/m").as_deref(), Some("http://127.0.0.1/m"));
        assert_eq!(of("http://elsewhere.example/m"), None);
        assert_eq!(of("//elsewhere.example/m"), None);
        assert_eq!(of("https://127.0.0.1/m"), None);
    }
}
