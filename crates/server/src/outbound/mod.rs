//! HTTP requests that the server itself makes: to receivers of webhooks, and to the collector of traces, logs and metrics.

mod tls;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

pub(crate) use tls::Tls;

/// Maximum number of bytes kept of an answer.
const MAX_ANSWER: usize = 4096;
/// Maximum size of the head of an answer, bytes.
const MAX_HEAD: usize = 16 << 10;

/// Reason why a request got no answer. The text is for the client or operator that chose the address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The name of the host cannot be in a certificate.
    #[error("a certificate cannot be for the host {0}")]
    Host(String),
    /// The host's certificate authorities could not be read.
    #[error(transparent)]
    Authorities(#[from] tokio::task::JoinError),
    /// The TLS client could not be set up.
    #[error(transparent)]
    Setup(#[from] tokio_rustls::rustls::Error),
    /// The peer does not speak TLS, or its certificate is not trusted.
    #[error("no TLS connection: {0}")]
    Handshake(std::io::Error),
    /// The connection broke, or the answer is not HTTP.
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

/// Sends `request`, whose URI is only a path, over a new connection; with TLS when `secure` names the host of the certificate.
/// Returns the beginning of the answer.
pub(crate) async fn send(
    stream: TcpStream,
    secure: Option<(&Tls, &str)>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, SendError> {
    match secure {
        Some((tls, host)) => exchange(tls.wrap(host, stream).await?, request).await,
        None => exchange(stream, request).await,
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, SendError> {
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let (parts, mut rest) = answer.into_parts();
    let mut body = Vec::new();
    while body.len() < MAX_ANSWER {
        match rest.frame().await {
            Some(Ok(frame)) => body.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref())),
            Some(Err(err)) => return Err(err.into()),
            None => break,
        }
    }
    connection.abort();
    body.truncate(MAX_ANSWER);
    Ok(Response::from_parts(parts, body.into()))
}
