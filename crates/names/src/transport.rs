//! Requests to the authority: HTTPS to certificates that are trusted, with answers of a bounded size in a bounded time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use serde::Deserialize;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// Time for a request and the whole of its answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of an answer, bytes. Chains of certificates are the largest.
const MAX_ANSWER: usize = 256 << 10;

/// Reason why the authority could not be asked, or did not say what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    #[error("invalid PEM in the file of --acme-ca: {0}")]
    NotPem(pem::Error),
    #[error("there is no CA certificate to verify the ACME server against")]
    NoRoots,
    /// The TLS client could not be set up.
    #[error(transparent)]
    Setup(#[from] rustls::Error),
    /// The URL of the directory is malformed.
    #[error(transparent)]
    Url(#[from] http::Error),
    /// The authority gave no answer.
    #[error(transparent)]
    NoAnswer(#[from] Error),
    /// The answer broke off.
    #[error(transparent)]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The directory is not JSON of that shape.
    #[error(transparent)]
    Directory(#[from] serde_json::Error),
    #[error("its directory does not say which name records of domains have for it")]
    NoIdentity,
}

/// A client of authorities.
pub(crate) struct Transport(Client<HttpsConnector<HttpConnector>, BodyWrapper<Bytes>>);

impl Transport {
    /// A client that trusts the certificates of `roots`, or what this host trusts.
    pub(crate) fn new(roots: Option<&str>) -> Result<Self, TransportError> {
        let mut trusted = RootCertStore::empty();
        match roots {
            Some(pem) => {
                let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
                trusted.add_parsable_certificates(all.map_err(TransportError::NotPem)?);
            }
            None => {
                trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if trusted.is_empty() {
            return Err(TransportError::NoRoots);
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(trusted)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
        Ok(Self(Client::builder(TokioExecutor::new()).build(connector)))
    }
}

/// A directory, of which only the names of the authority are of use here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Directory {
    meta: Meta,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Meta {
    caa_identities: Vec<String>,
}

impl Transport {
    /// The domain name that stands for the authority in records of domains.
    pub(crate) async fn issuer(&self, directory: &str) -> Result<String, TransportError> {
        let request = Request::get(directory).body(BodyWrapper::default())?;
        let mut answer = self.request(request).await?;
        let body = answer.body.into_bytes().await.map_err(TransportError::Body)?;
        let read: Directory = serde_json::from_slice(&body)?;
        let is_plain =
            |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
        let named = read.meta.caa_identities.into_iter().find(|name| is_plain(name) && name.len() < 256);
        named.ok_or(TransportError::NoIdentity)
    }
}

impl HttpClient for Transport {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let answer = self.0.request(request);
        Box::pin(async move {
            let exchange = async {
                let (parts, body) = answer.await.map_err(other)?.into_parts();
                let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(Error::Other)?.to_bytes();
                Ok(Response::from_parts(parts, Full::new(body)).into())
            };
            tokio::time::timeout(TIMEOUT, exchange).await.unwrap_or_else(|late| Err(other(late)))
        })
    }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Other(Box::new(error))
}
