//! The transport to the collector.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::InvalidHeaderValue;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::Full;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use tokio::net::TcpStream;

use crate::outbound::{self, SendError, Tls};

/// Timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason why the collector gave no answer.
#[derive(Debug, thiserror::Error)]
enum PostError {
    #[error("no answer in time")]
    Late,
    #[error("the URL names no host")]
    NoHost,
    #[error("the host has no address")]
    NoAddress,
    /// The host could not be resolved or connected to.
    #[error(transparent)]
    Connect(#[from] std::io::Error),
    /// The name of the host cannot be a header.
    #[error(transparent)]
    Host(#[from] InvalidHeaderValue),
    #[error(transparent)]
    Send(#[from] SendError),
}

/// The HTTP client of the exporters.
#[derive(Debug, Default)]
pub(super) struct Post {
    tls: Tls,
}

/// Has the exporter that `builder` builds send to `endpoint` by this transport.
pub(super) fn over_http<B: WithExportConfig + WithHttpConfig>(builder: B, endpoint: &Uri) -> B {
    builder
        .with_http_client(Post::default())
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint.to_string())
}

#[async_trait]
impl HttpClient for Post {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = tokio::time::timeout(ATTEMPT_TIMEOUT, self.post(request)).await;
        let answer = sent.unwrap_or(Err(PostError::Late));
        // The exporter does not log the reason.
        answer.map_err(|error| {
            tracing::debug!(%error, "a batch for the collector was not sent");
            error.into()
        })
    }
}

impl Post {
    async fn post(&self, request: Request<Bytes>) -> Result<Response<Bytes>, PostError> {
        let uri = request.uri().clone();
        let host = uri.host().ok_or(PostError::NoHost)?.trim_matches(['[', ']']);
        let is_secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let mut found = tokio::net::lookup_host((host, port)).await?;
        let address = found.next().ok_or(PostError::NoAddress)?;
        let mut request = request.map(Full::new);
        *request.uri_mut() = uri.path_and_query().map_or(Uri::from_static("/"), |path| path.clone().into());
        let authority = uri.authority().map_or(host, |authority| authority.as_str());
        let authority = HeaderValue::from_str(authority)?;
        request.headers_mut().insert(header::HOST, authority);
        let stream = TcpStream::connect(address).await?;
        Ok(outbound::send(stream, is_secure.then_some((&self.tls, host)), request).await?)
    }
}
