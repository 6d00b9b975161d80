//! A running sandbox: requests to its ports, through the server.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response};
use hyper::body::Incoming;
use sandcove_wire::boot::AGENT_PORT;
use sandcove_wire::id::SandboxId;
use sandcove_wire::secret::Secret;

use crate::Result;
use crate::transport::Transport;

/// A handle on a sandbox. Dropping it leaves the sandbox alone.
#[derive(Clone, Debug)]
pub struct Sandbox {
    transport: Transport,
    id: SandboxId,
    token: Option<HeaderValue>,
}

impl Sandbox {
    pub(crate) fn new(transport: Transport, id: SandboxId, token: Option<&Secret>) -> Self {
        let token = token.and_then(|token| HeaderValue::from_str(token.expose()).ok()).map(|mut value| {
            value.set_sensitive(true);
            value
        });
        Self { transport, id, token }
    }

    /// Its id.
    pub fn id(&self) -> &SandboxId {
        &self.id
    }

    /// Whether the agent answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn health(&self) -> Result<()> {
        self.send(AGENT_PORT, Method::GET, "/health", Vec::new(), Bytes::new()).await.map(drop)
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
