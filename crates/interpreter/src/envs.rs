//! Asks the agent for the global variables of the sandbox (contract: interpreter, section 6).
//!
//! The agent answers requests that carry the token of the sandbox. The interpreter does not have that token, and sends
//! the one that came with the client's request, as the contract demands.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use sandcove_wire::secret::Secret;
use tokio::net::TcpStream;

/// How long an execution waits for the agent, which answers from memory.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Limit on the answer, in bytes.
const MAX_ANSWER: usize = 16 << 20;

/// An error of asking the agent for variables.
#[derive(Debug, thiserror::Error)]
pub enum EnvsError {
    /// Nothing listens at the agent's address.
    #[error("failed to connect to the agent")]
    Connect(#[source] std::io::Error),
    /// The exchange broke off.
    #[error("failed to read variables from the agent")]
    Exchange(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The agent refused, usually because the request had no token.
    #[error("agent answered {0}")]
    Refused(StatusCode),
    /// The answer is not a JSON object of strings.
    #[error("failed to parse variables")]
    Malformed(#[source] serde_json::Error),
    /// The agent did not answer in time.
    #[error("agent did not answer within {} s", TIMEOUT.as_secs())]
    Late,
}

/// Asks the agent for the variables, with the token that came with the client's request.
pub async fn fetch(agent: SocketAddr, token: Option<&Secret>) -> Result<BTreeMap<String, String>, EnvsError> {
    tokio::time::timeout(TIMEOUT, exchange(agent, token)).await.unwrap_or(Err(EnvsError::Late))
}

async fn exchange(agent: SocketAddr, token: Option<&Secret>) -> Result<BTreeMap<String, String>, EnvsError> {
    let stream = TcpStream::connect(agent).await.map_err(EnvsError::Connect)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| EnvsError::Exchange(error.into()))?;
    tokio::spawn(connection);
    let mut request = Request::get("/envs").header(HOST, format!("localhost:{}", agent.port()));
    if let Some(token) = token {
        request = request.header("X-Access-Token", token.expose());
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| EnvsError::Exchange(error.into()))?;
    let response = sender.send_request(request).await.map_err(|error| EnvsError::Exchange(error.into()))?;
    if response.status() != StatusCode::OK {
        return Err(EnvsError::Refused(response.status()));
    }
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(EnvsError::Exchange)?;
    serde_json::from_slice(&body.to_bytes()).map_err(EnvsError::Malformed)
}
