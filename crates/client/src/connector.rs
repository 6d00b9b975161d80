//! Opens the connections to a server, or into one sandbox.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::Service;

/// Limit on the time to connect to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

type Connecting<E> = Pin<Box<dyn Future<Output = Result<TokioIo<TcpStream>, E>> + Send>>;
type Opened = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Opens connections, in one of two ways.
#[derive(Clone)]
pub(crate) enum Connector {
    /// To the host and port of the URL.
    Network(HttpConnector),
    /// To the port of the URL, inside a sandbox.
    Inside(Arc<dyn Fn(u16) -> Opened + Send + Sync>),
}

impl Connector {
    pub(crate) fn network() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        Self::Network(connector)
    }

    pub(crate) fn inside<F, Opening>(connect: F) -> Self
    where
        F: Fn(u16) -> Opening + Send + Sync + 'static,
        Opening: Future<Output = io::Result<TcpStream>> + Send + 'static,
    {
        Self::Inside(Arc::new(move |port| Box::pin(connect(port))))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Connecting<BoxError>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Network(connector) => connector.poll_ready(context).map_err(Into::into),
            Self::Inside(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, uri: Uri) -> Connecting<BoxError> {
        match self {
            Self::Network(connector) => {
                let connecting = connector.call(uri);
                Box::pin(async move { Ok(connecting.await?) })
            }
            Self::Inside(connect) => {
                let opening = connect(uri.port_u16().unwrap_or_default());
                Box::pin(async move {
                    let stream = opening.await?;
                    stream.set_nodelay(true)?;
                    Ok(TokioIo::new(stream))
                })
            }
        }
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network(_) => "Network",
            Self::Inside(_) => "Inside",
        })
    }
}
