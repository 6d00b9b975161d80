//! A running sandbox: requests to its ports, through the server or over connections into it.

use std::convert::Infallible;
use std::future::Future;
use std::io;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response};
use hyper::body::Incoming;
use sandcove_wire::boot::{AGENT_PORT, INTERPRETER_PORT};
use sandcove_wire::id::SandboxId;
use sandcove_wire::secret::Secret;
use tokio::net::{TcpListener, TcpStream};

use crate::connector::Connector;
use crate::error::Result;
use crate::forward::{self, Forward};
use crate::transport::Transport;
use crate::upload::{RequestBody, whole};

/// A handle for a sandbox. Dropping it does not end the sandbox.
#[derive(Clone, Debug)]
pub struct Sandbox {
    transport: Transport,
    id: SandboxId,
    token: Option<HeaderValue>,
    traffic_token: Option<HeaderValue>,
    route: Route,
    /// Account of calls about directories; root when unset.
    directory_user: Option<String>,
}

/// The way of requests to a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To one URL for all sandboxes. Headers say which port of which sandbox is meant.
    Shared(String),
    /// To a host name of the port, below this domain.
    Names(String),
    /// The connection leads to the port.
    Direct,
}

impl Sandbox {
    pub(crate) fn new(
        transport: Transport,
        id: SandboxId,
        token: Option<&Secret>,
        traffic_token: Option<&Secret>,
        route: Route,
    ) -> Self {
        Self {
            transport,
            id,
            token: token.and_then(sensitive),
            traffic_token: traffic_token.and_then(sensitive),
            route,
            directory_user: None,
        }
    }

    /// A handle for the sandbox into which `connect` opens connections, each to a port on its loopback device. No server takes part.
    pub fn over<F, Opening>(id: SandboxId, connect: F) -> Self
    where
        F: Fn(u16) -> Opening + Send + Sync + 'static,
        Opening: Future<Output = io::Result<TcpStream>> + Send + 'static,
    {
        let transport = Transport::over(Connector::inside(connect), direct(AGENT_PORT));
        Self { transport, id, token: None, traffic_token: None, route: Route::Direct, directory_user: None }
    }

    /// The handle with the access token that the agent requires.
    #[must_use]
    pub fn with_token(self, token: &Secret) -> Self {
        Self { token: sensitive(token), ..self }
    }

    /// The handle with calls about directories that act as the account `user`, and start relative paths at its home directory; they act as root
    /// by default. The calls are [`stat`](Self::stat), [`list_directory`](Self::list_directory), [`make_directory`](Self::make_directory),
    /// [`rename`](Self::rename), [`remove`](Self::remove) and [`watch_directory`](Self::watch_directory).
    #[must_use]
    pub fn with_directory_user(self, user: impl Into<String>) -> Self {
        Self { directory_user: Some(user.into()), ..self }
    }

    /// The account of calls about directories.
    pub(crate) fn directory_user(&self) -> &str {
        self.directory_user.as_deref().unwrap_or("root")
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
        let name = match &self.route {
            Route::Names(domain) => HeaderValue::try_from(format!("{port}-{}.{domain}", self.id)).ok(),
            Route::Shared(_) | Route::Direct => None,
        };
        let address = forward::headers([
            ("host", name),
            ("e2b-sandbox-id", HeaderValue::from_str(self.id.as_str()).ok()),
            ("e2b-sandbox-port", Some(HeaderValue::from(port))),
        ]);
        let tokens = forward::headers(self.tokens(port));
        let base = self.base(port);
        let connector = self.transport.connector();
        Forward::new(connector, &base, address, tokens, port == AGENT_PORT).serve(listener).await
    }

    /// Headers with the tokens that a port of the sandbox requires. The access token is only for our own services: others in the
    /// sandbox must not see it. The server checks the traffic token on all ports but the agent's.
    fn tokens(&self, port: u16) -> [(&'static str, Option<HeaderValue>); 2] {
        let is_ours = port == AGENT_PORT || port == INTERPRETER_PORT;
        [
            ("x-access-token", self.token.clone().filter(|_| is_ours)),
            ("e2b-traffic-access-token", self.traffic_token.clone().filter(|_| port != AGENT_PORT)),
        ]
    }

    pub(crate) async fn send(
        &self,
        port: u16,
        method: Method,
        path: &str,
        headers: Vec<(HeaderName, HeaderValue)>,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let headers = self.headers(port, headers);
        self.transport.send_to(&self.base(port), method, path, &headers, whole(body)).await
    }

    pub(crate) async fn send_body(
        &self,
        port: u16,
        method: Method,
        path: &str,
        headers: Vec<(HeaderName, HeaderValue)>,
        body: RequestBody,
    ) -> Result<Response<Incoming>> {
        let headers = self.headers(port, headers);
        self.transport.send_to(&self.base(port), method, path, &headers, body).await
    }

    /// The access token that the agent requires.
    pub(crate) fn token(&self) -> Option<Secret> {
        self.token.as_ref().and_then(|token| token.to_str().ok()).map(Secret::new)
    }

    /// Headers of a request to a port: those of the caller, those that name the sandbox, and the tokens.
    fn headers(
        &self,
        port: u16,
        mut headers: Vec<(HeaderName, HeaderValue)>,
    ) -> Vec<(HeaderName, HeaderValue)> {
        if self.route != Route::Direct {
            if let Ok(id) = HeaderValue::from_str(self.id.as_str()) {
                headers.push((HeaderName::from_static("e2b-sandbox-id"), id));
            }
            headers.push((HeaderName::from_static("e2b-sandbox-port"), HeaderValue::from(port)));
        }
        let tokens = self.tokens(port).into_iter();
        headers.extend(tokens.filter_map(|(name, token)| Some((HeaderName::from_static(name), token?))));
        headers
    }

    /// The URL at which requests to a port begin.
    fn base(&self, port: u16) -> String {
        match &self.route {
            Route::Shared(url) => url.clone(),
            Route::Names(domain) => format!("https://{port}-{}.{domain}", self.id),
            Route::Direct => direct(port),
        }
    }

    /// The URL of a path at a port, for error texts.
    pub(crate) fn url(&self, port: u16, path: &str) -> String {
        format!("{}{path}", self.base(port))
    }
}

/// The URL of a port inside a sandbox.
fn direct(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Makes a header value that `Debug` does not show.
fn sensitive(token: &Secret) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(token.expose()).ok()?;
    value.set_sensitive(true);
    Some(value)
}
