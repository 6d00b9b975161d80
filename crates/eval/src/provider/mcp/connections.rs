//! The connected servers of a configuration, and their tools.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::McpError;
use super::check;
use super::server::McpServer;
use crate::model::Object;
use crate::script::Workers;
use crate::template::value::to_number;

/// The time limit of a request, as the SDKs have it.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Servers that have greeted, in the order of the configuration. Their programs end when this is dropped.
pub struct Connections {
    servers: Vec<McpServer>,
    limit: Duration,
}

impl Connections {
    /// Connects to the servers of a configuration. Their programs run in the directory of the suite.
    ///
    /// # Errors
    /// An error if one of them cannot be reached.
    pub async fn open(config: &Object, workers: &Arc<Workers>) -> Result<Self, McpError> {
        let limit = time_limit(config);
        let mut servers = Vec::new();
        for settings in check::servers(config) {
            let server = McpServer::connect(settings, config, workers, limit);
            let name = check::name(settings);
            let failed = |error| McpError::Server { name, error: Box::new(error) };
            servers.push(server.await.map_err(failed)?);
        }
        Ok(Self { servers, limit })
    }

    /// The tools of all servers that may be called.
    pub fn tools(&self) -> impl Iterator<Item = &Value> {
        self.servers.iter().flat_map(|server| server.tools())
    }

    /// Whether one of the servers has a tool.
    pub fn has(&self, tool: &str) -> bool {
        self.servers.iter().any(|server| server.has(tool))
    }

    /// Calls a tool of the first server that has it, and returns the result.
    ///
    /// # Errors
    /// An error if no server has the tool, or the call fails. What a tool reports as its error is a result.
    pub async fn call(&self, tool: &str, arguments: &Value) -> Result<Value, McpError> {
        let server = self.servers.iter().find(|server| server.has(tool));
        let server = server.ok_or_else(|| McpError::UnknownTool(tool.to_owned()))?;
        server.request("tools/call", json!({"name": tool, "arguments": arguments}), self.limit).await
    }
}

/// The content of a result, as text.
pub fn content(result: &Value) -> String {
    match result.get("content") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(content) => content.to_string(),
    }
}

fn time_limit(config: &Object) -> Duration {
    let of_config = config.get("timeout").map(to_number);
    let of_env = || std::env::var("MCP_REQUEST_TIMEOUT_MS").ok().and_then(|text| text.parse().ok());
    let ms = of_config.or_else(of_env).filter(|ms| *ms > 0.0);
    ms.map_or(TIME_LIMIT, |ms| Duration::from_millis(ms as u64))
}
