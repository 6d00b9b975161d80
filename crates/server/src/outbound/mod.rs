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

/// Sends `request`, whose URI is only a path, over a new connection; with TLS when `secure` names the host of the certificate.
/// Returns the beginning of the answer. The error text is for the client or operator that chose the address.
pub(crate) async fn send(
    stream: TcpStream,
    secure: Option<(&Tls, &str)>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, String> {
    match secure {
        Some((tls, host)) => exchange(tls.wrap(host, stream).await?, request).await,
        None => exchange(stream, request).await,
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, String> {
    let failed = |err: hyper::Error| err.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(failed)?;
    let (parts, mut rest) = answer.into_parts();
    let mut body = Vec::new();
    while body.len() < MAX_ANSWER {
        match rest.frame().await {
            Some(Ok(frame)) => body.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref())),
            Some(Err(err)) => return Err(failed(err)),
            None => break,
        }
    }
    connection.abort();
    body.truncate(MAX_ANSWER);
    Ok(Response::from_parts(parts, body.into()))
}
