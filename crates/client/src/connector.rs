//! Opens the connections to a server, or into one sandbox.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tower::Service;

use crate::stream::Stream;

/// Limit on the time to connect to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

type Connecting<E> = Pin<Box<dyn Future<Output = Result<Stream, E>> + Send>>;
type Opened = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Opens connections, in one of four ways.
#[derive(Clone)]
pub(crate) enum Connector {
    /// To the host and port of the URL.
    Network(HttpConnector),
    /// As that, with TLS where the URL says so.
    Secure(HttpsConnector<HttpConnector>),
    /// To the port of the URL, inside a sandbox.
    Inside(Arc<dyn Fn(u16) -> Opened + Send + Sync>),
    /// To a server in this process, whatever the URL.
    Here(Arc<dyn Fn() -> DuplexStream + Send + Sync>),
}

impl Connector {
    pub(crate) fn network() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        Self::Network(connector)
    }

    /// Connections with TLS to servers whose certificate this machine trusts.
    ///
    /// # Errors
    /// An error if the certificates of the machine's authorities cannot be read.
    pub(crate) fn secure() -> io::Result<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.enforce_http(false);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_native_roots()?
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        Ok(Self::Secure(connector))
    }

    pub(crate) fn inside<F, Opening>(connect: F) -> Self
    where
        F: Fn(u16) -> Opening + Send + Sync + 'static,
        Opening: Future<Output = io::Result<TcpStream>> + Send + 'static,
    {
        Self::Inside(Arc::new(move |port| Box::pin(connect(port))))
    }

    pub(crate) fn here(connect: impl Fn() -> DuplexStream + Send + Sync + 'static) -> Self {
        Self::Here(Arc::new(connect))
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = Connecting<BoxError>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Network(connector) => connector.poll_ready(context).map_err(Into::into),
            Self::Secure(connector) => connector.poll_ready(context),
            Self::Inside(_) | Self::Here(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, uri: Uri) -> Connecting<BoxError> {
        match self {
            Self::Network(connector) => {
                let connecting = connector.call(uri);
                Box::pin(async move { Ok(Stream::Plain(connecting.await?)) })
            }
            Self::Secure(connector) => {
                let connecting = connector.call(uri);
                Box::pin(async move { Ok(Stream::Secure(Box::new(connecting.await?))) })
            }
            Self::Inside(connect) => {
                let opening = connect(uri.port_u16().unwrap_or_default());
                Box::pin(async move {
                    let stream = opening.await?;
                    stream.set_nodelay(true)?;
                    Ok(Stream::Plain(TokioIo::new(stream)))
                })
            }
            Self::Here(connect) => {
                let stream = Stream::Here(TokioIo::new(connect()));
                Box::pin(async move { Ok(stream) })
            }
        }
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network(_) => "Network",
            Self::Secure(_) => "Secure",
            Self::Inside(_) => "Inside",
            Self::Here(_) => "Here",
        })
    }
}
