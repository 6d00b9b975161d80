//! The global variables of the sandbox, which the agent knows (contract: interpreter, section 6).

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

/// How long an execution may wait for the agent, which answers from memory.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest set we accept, in bytes.
const LIMIT: usize = 16 << 20;

/// Why the variables could not be read.
#[derive(Debug, thiserror::Error)]
pub enum EnvsError {
    /// Nothing answered at the agent's address.
    #[error("failed to connect to the agent")]
    Connect(#[source] std::io::Error),
    /// The exchange broke off.
    #[error("failed to read variables from the agent")]
    Exchange(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The agent refused, usually for want of a token.
    #[error("agent answered {0}")]
    Refused(StatusCode),
    /// The answer is not a JSON object of texts.
    #[error("failed to parse variables")]
    Malformed(#[source] serde_json::Error),
    /// No answer in time.
    #[error("agent did not answer within {} s", PATIENCE.as_secs())]
    Late,
}

/// Asks the agent for the variables, with the token the client sent along.
pub async fn fetch(agent: SocketAddr, token: Option<&Secret>) -> Result<BTreeMap<String, String>, EnvsError> {
    tokio::time::timeout(PATIENCE, exchange(agent, token)).await.unwrap_or(Err(EnvsError::Late))
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
    let body = Limited::new(response.into_body(), LIMIT).collect().await.map_err(EnvsError::Exchange)?;
    serde_json::from_slice(&body.to_bytes()).map_err(EnvsError::Malformed)
}
