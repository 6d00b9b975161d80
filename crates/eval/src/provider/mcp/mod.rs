//! `mcp`: servers of the Model Context Protocol. A prompt names a tool and its arguments, and what the tool returns is the answer.

mod check;
mod connections;
mod pipe;
mod server;
mod sse;
mod waiting;
mod web;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::http::code;
use super::http::error::HttpError;
use super::settings;
use crate::calling::spec::ProviderSpec;
use crate::calling::{Call, CallError, Provider};
use crate::javascript::JavaScriptError;
use crate::model::{Object, ProviderResponse};
use crate::script::Workers;
pub use check::{problem, problem_of_model};
pub use connections::{Connections, content};

/// Reason why a tool gave no answer.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum McpError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(
        "the prompt is not JSON; it must name a tool, as in {{\"tool\": \"search\", \"args\": {{\"text\": \"x\"}}}}"
    )]
    Prompt,
    #[error(
        "the prompt names no tool; it must be like {{\"tool\": \"search\", \"args\": {{\"text\": \"x\"}}}}"
    )]
    NoTool,
    #[error("no connected server has a tool `{0}`")]
    UnknownTool(String),
    #[error("failed to start `{program}`: {error}")]
    Start { program: String, error: std::io::Error },
    #[error("the server ended, or closed its output")]
    Closed,
    #[error("the server did not answer `{method}` within {} ms", limit.as_millis())]
    TimedOut { method: String, limit: Duration },
    #[error("the server answered `{method}` with status {status}: {start}")]
    Status { method: String, status: u16, start: String },
    #[error("the stream names `{0}` for requests, which is not an address of its own host")]
    Address(String),
    #[error("the connection failed: {0}")]
    Connection(String),
    #[error("the server answered with error {code}: {message}")]
    Refused { code: String, message: String },
    #[error("the server `{name}`: {error}")]
    Server { name: String, error: Box<McpError> },
    #[error("`transformResponse` failed: {0}")]
    Transform(JavaScriptError),
    #[error("`transformResponse` gave nothing for: {0}")]
    Nothing(String),
}

/// The provider `mcp`.
pub struct Mcp {
    id: String,
    workers: Arc<Workers>,
    /// Connected for the first prompt, and for all of them.
    servers: OnceCell<Connections>,
}

impl Mcp {
    /// A provider whose programs run in the directory of the suite. Its functions in files are run by `workers`.
    pub fn new(spec: &ProviderSpec, workers: Arc<Workers>) -> Self {
        Self { id: spec.id.clone(), workers, servers: OnceCell::new() }
    }

    async fn ask(&self, call: &Call<'_>) -> Result<ProviderResponse, McpError> {
        // A variable of this name is not shortened to what the prompt shows of it.
        let payload = match call.vars.get("prompt") {
            Some(Value::String(text)) => serde_json::from_str(text),
            Some(other) => Ok(other.clone()),
            None => serde_json::from_str(call.prompt),
        };
        let payload: Value = payload.map_err(|_| McpError::Prompt)?;
        let of = |keys: &[&str]| keys.iter().find_map(|key| payload.get(*key)).cloned();
        let tool = of(&["tool", "toolName", "function", "functionName", "name"]);
        let tool = tool.as_ref().and_then(Value::as_str).filter(|tool| !tool.is_empty());
        let tool = tool.ok_or(McpError::NoTool)?;
        let mut arguments =
            call.config.get("defaultArgs").and_then(Value::as_object).cloned().unwrap_or_default();
        if let Some(Value::Object(own)) = of(&["args", "arguments", "params", "parameters"]) {
            arguments.extend(own);
        }
        let started = Instant::now();
        let connect = || Connections::open(call.config, &self.workers);
        let servers = self.servers.get_or_try_init(connect).await?;
        let result = servers.call(tool, &Value::Object(arguments.clone())).await?;
        let content = content(&result);
        let about = json!({"toolName": tool, "toolArgs": arguments, "originalPayload": payload});
        let mut response = self.received(call.config, &result, content, &about).await?;
        response.raw.get_or_insert(result);
        let metadata = response.metadata.get_or_insert_default();
        metadata.extend(about.as_object().cloned().unwrap_or_default());
        response.latency_ms = Some(started.elapsed().as_millis() as f64);
        Ok(response)
    }

    async fn received(
        &self,
        config: &Object,
        result: &Value,
        content: String,
        about: &Value,
    ) -> Result<ProviderResponse, McpError> {
        let Some(code) = code::of_response(config) else { return Ok(ProviderResponse::text(content)) };
        let arguments = [result.clone(), json!(content), about.clone()];
        let value = if code.starts_with("file://") {
            let called = self.workers.invoke(code, &["get_transform"], arguments.to_vec()).await;
            called.map_err(HttpError::from)?
        } else {
            code::evaluate(code, "result, content, context", &arguments).map_err(McpError::Transform)?
        };
        code::answer(value)?.ok_or(McpError::Nothing(content))
    }
}

impl Provider for Mcp {
    fn id(&self) -> &str {
        &self.id
    }

    fn settled<'a>(&'a self, config: &'a Object) -> BoxFuture<'a, Result<Option<Object>, CallError>> {
        std::future::ready(settings::data(config, self.workers.base())).boxed()
    }

    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        async move { self.ask(call).await.unwrap_or_else(ProviderResponse::failed) }.boxed()
    }
}
