//! A running sandbox: requests to its ports, through the server.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response};
use hyper::body::Incoming;
use sandcove_wire::boot::{AGENT_PORT, INTERPRETER_PORT};
use sandcove_wire::id::SandboxId;
use sandcove_wire::secret::Secret;
use tokio::net::TcpListener;

use crate::error::Result;
use crate::forward::{self, Forward};
use crate::transport::Transport;

/// A handle for a sandbox. Dropping it does not end the sandbox.
#[derive(Clone, Debug)]
pub struct Sandbox {
    transport: Transport,
    id: SandboxId,
    token: Option<HeaderValue>,
    traffic_token: Option<HeaderValue>,
}

impl Sandbox {
    pub(crate) fn new(
        transport: Transport,
        id: SandboxId,
        token: Option<&Secret>,
        traffic_token: Option<&Secret>,
    ) -> Self {
        Self {
            transport,
            id,
            token: token.and_then(sensitive),
            traffic_token: traffic_token.and_then(sensitive),
        }
    }

    /// Id of the sandbox.
    pub fn id(&self) -> &SandboxId {
        &self.id
    }

    /// Checks that the agent answers.
    ///
    /// # Errors
    /// If the agent does not answer.
    pub async fn health(&self) -> Result<()> {
        self.send(AGENT_PORT, Method::GET, "/health", Vec::new(), Bytes::new()).await.map(drop)
    }

    /// Forwards the HTTP requests of every connection to `listener` to a port of the sandbox, in both directions at once, with
    /// upgrades such as WebSockets. The tokens that the port requires are added where callers send none: every program that
    /// can connect has the rights of this handle. Forwarding and its connections end only when the future is dropped.
    pub async fn forward(&self, port: u16, listener: TcpListener) -> Infallible {
        let address = forward::headers([
            ("e2b-sandbox-id", HeaderValue::from_str(self.id.as_str()).ok()),
            ("e2b-sandbox-port", Some(HeaderValue::from(port))),
        ]);
        // The access token is only for our own services: others in the sandbox must not see it.
        let is_ours = port == AGENT_PORT || port == INTERPRETER_PORT;
        let tokens = forward::headers([
            ("x-access-token", self.token.clone().filter(|_| is_ours)),
            ("e2b-traffic-access-token", self.traffic_token.clone().filter(|_| port != AGENT_PORT)),
        ]);
        Forward::new(self.transport.base(), address, tokens, port == AGENT_PORT).serve(listener).await
    }

    pub(crate) async fn send(
        &self,
        port: u16,
        method: Method,
        path: &str,
        mut headers: Vec<(HeaderName, HeaderValue)>,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        if let Ok(id) = HeaderValue::from_str(self.id.as_str()) {
            headers.push((HeaderName::from_static("e2b-sandbox-id"), id));
        }
        headers.push((HeaderName::from_static("e2b-sandbox-port"), HeaderValue::from(port)));
        if let Some(token) = &self.token {
            headers.push((HeaderName::from_static("x-access-token"), token.clone()));
        }
        self.transport.send(method, path, &headers, body).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.transport.url(path)
    }
}

/// Makes a header value that `Debug` does not show.
fn sensitive(token: &Secret) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(token.expose()).ok()?;
    value.set_sensitive(true);
    Some(value)
}
