//! One server: the handshake, its tools, and requests to it.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::McpError;
use super::pipe::Pipe;
use super::sse::Sse;
use super::web::Web;
use crate::model::Object;
use crate::script::Workers;

/// The version of the protocol that is spoken.
const VERSION: &str = "2025-06-18";
/// Maximum number of pages of tools that are asked for.
const MAX_PAGES: usize = 100;

/// A server that has greeted.
pub struct McpServer {
    connection: Connection,
    tools: Vec<Value>,
}

enum Connection {
    Pipe(Box<Pipe>),
    Web(Box<Web>),
    Sse(Box<Sse>),
}

impl McpServer {
    /// Connects to a server, and asks for its tools.
    pub async fn connect(
        settings: &Object,
        config: &Object,
        workers: &Workers,
        limit: Duration,
    ) -> Result<Self, McpError> {
        let is_program = ["command", "path"].iter().any(|key| settings.contains_key(*key));
        let connection = match is_program {
            true => Connection::Pipe(Box::new(Pipe::start(settings, workers)?)),
            false => Connection::Web(Box::new(Web::new(settings, workers))),
        };
        let mut server = Self { connection, tools: Vec::new() };
        match server.greet(limit).await {
            Err(error) if !is_program && !matches!(error, McpError::TimedOut { .. }) => {
                let opened = tokio::time::timeout(limit, Sse::open(Web::new(settings, workers))).await;
                // An address without a server of either transport is reported by the error of the newer one.
                let Ok(Ok(stream)) = opened else { return Err(error) };
                server.connection = Connection::Sse(Box::new(stream));
                server.greet(limit).await?;
            }
            greeted => greeted?,
        }
        if config.get("pingOnConnect") == Some(&Value::Bool(true)) {
            server.request("ping", json!({}), limit).await?;
        }
        server.list(config, limit).await?;
        Ok(server)
    }

    /// Says what is spoken here, and learns what the server speaks.
    async fn greet(&mut self, limit: Duration) -> Result<(), McpError> {
        let hello = json!({
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": {"name": "sandcove", "version": env!("CARGO_PKG_VERSION")},
        });
        let greeting = self.request("initialize", hello, limit).await?;
        let version = greeting.get("protocolVersion").and_then(Value::as_str).unwrap_or(VERSION);
        if let Connection::Web(web) = &mut self.connection {
            web.speak(version);
        }
        self.notify("notifications/initialized", limit).await
    }

    async fn list(&mut self, config: &Object, limit: Duration) -> Result<(), McpError> {
        let names = |key: &str| {
            config.get(key).map(|names| match names {
                Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
                other => other.as_str().into_iter().collect::<HashSet<_>>(),
            })
        };
        let (only, without) = (names("tools"), names("exclude_tools").unwrap_or_default());
        let mut params = json!({});
        for _ in 0..MAX_PAGES {
            let page = self.request("tools/list", params, limit).await?;
            let tools = page.get("tools").and_then(Value::as_array).into_iter().flatten();
            let is_wanted = |tool: &&Value| {
                let name = tool.get("name").and_then(Value::as_str);
                name.is_some_and(|name| {
                    only.as_ref().is_none_or(|only| only.contains(name)) && !without.contains(name)
                })
            };
            self.tools.extend(tools.filter(is_wanted).cloned());
            match page.get("nextCursor").and_then(Value::as_str) {
                Some(cursor) => params = json!({"cursor": cursor}),
                None => break,
            }
        }
        Ok(())
    }

    /// The tools that may be called, as the server describes them.
    pub fn tools(&self) -> &[Value] {
        &self.tools
    }

    /// Whether the server has a tool that may be called.
    pub fn has(&self, tool: &str) -> bool {
        self.tools.iter().any(|known| known.get("name").and_then(Value::as_str) == Some(tool))
    }

    /// Returns the result of a request.
    pub async fn request(&self, method: &str, params: Value, limit: Duration) -> Result<Value, McpError> {
        let answer = async {
            match &self.connection {
                Connection::Pipe(pipe) => pipe.request(method, params).await,
                Connection::Web(web) => web.request(method, params).await,
                Connection::Sse(stream) => stream.request(method, params).await,
            }
        };
        let answer = tokio::time::timeout(limit, answer).await;
        let mut answer = answer.map_err(|_| McpError::TimedOut { method: method.to_owned(), limit })??;
        if let Some(error) = answer.get("error") {
            let message = error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
            return Err(McpError::Refused {
                code: error.get("code").map(Value::to_string).unwrap_or_default(),
                message,
            });
        }
        Ok(answer.get_mut("result").map(Value::take).unwrap_or_default())
    }

    async fn notify(&self, method: &str, limit: Duration) -> Result<(), McpError> {
        let message = json!({"jsonrpc": "2.0", "method": method});
        let sent = async {
            match &self.connection {
                Connection::Pipe(pipe) => pipe.send(&message).await,
                Connection::Web(web) => web.notify(&message).await,
                Connection::Sse(stream) => stream.send(&message).await,
            }
        };
        let sent = tokio::time::timeout(limit, sent).await;
        sent.map_err(|_| McpError::TimedOut { method: method.to_owned(), limit })?
    }
}
