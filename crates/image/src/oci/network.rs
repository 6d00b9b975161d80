//! HTTP requests to registries, for a client that is a stranger. Every address is checked after its name is resolved, and the checked
//! address is the one that is connected to. Redirects go through the same checks.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use url::{Host, Url};

use super::settings::Settings;

/// Time to connect to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time from a request to the head of its response.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Time without any byte of a body.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_REDIRECTS: usize = 5;

/// A failure to get a response. The text names the host and never a path, which may hold signatures.
#[derive(Debug)]
pub(super) enum NetworkError {
    /// The address may not be connected to; another attempt is pointless.
    Refused(String),
    /// The connection failed; another attempt may succeed.
    Failed(String),
}

impl NetworkError {
    pub(super) fn text(self) -> String {
        let (Self::Refused(text) | Self::Failed(text)) = self;
        text
    }
}

type Result<T> = std::result::Result<T, NetworkError>;

/// A way to the registries.
#[derive(Clone)]
pub(super) struct Network {
    settings: Arc<Settings>,
    tls: Arc<OnceCell<TlsConnector>>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Network {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { settings: Arc::new(settings.clone()), tls: Arc::default() }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// URL of the API of the registry `host`.
    pub(super) fn base(&self, host: &str) -> std::result::Result<Url, String> {
        let scheme = if is_listed(&self.settings.insecure, host) { "http" } else { "https" };
        Url::parse(&format!("{scheme}://{host}/"))
            .map_err(|error| format!("'{host}' is not a valid host: {error}"))
    }

    /// Sends a GET request and follows redirects. `authorization` is sent to the origin of `url` only.
    pub(super) async fn get(
        &self,
        url: &Url,
        headers: &HeaderMap,
        authorization: Option<&HeaderValue>,
    ) -> Result<Response<Incoming>> {
        let mut at = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let mut headers = headers.clone();
            if let Some(authorization) = authorization
                && at.origin() == url.origin()
            {
                headers.insert(AUTHORIZATION, authorization.clone());
            }
            let response = self.send(Method::GET, &at, headers, Bytes::new()).await?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let next = location.and_then(|location| at.join(location).ok());
            let host = host_of(&at);
            at = next.ok_or_else(|| refused(format!("'{host}' redirects to an invalid location")))?;
        }
        Err(refused(format!("'{}' redirects more than {MAX_REDIRECTS} times", host_of(url))))
    }

    /// Sends one request over a new connection.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let host = host_of(url);
        let stream = self.connect(url).await?;
        let failed = |error: &dyn std::fmt::Display| {
            NetworkError::Failed(format!("the connection to '{host}' failed: {error}"))
        };
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .body(Full::new(body))
            .map_err(|_| refused(format!("a URL of '{host}' is invalid")))?;
        *request.headers_mut() = headers;
        let authority =
            HeaderValue::from_str(&host).map_err(|_| refused(format!("'{host}' is not a valid host")))?;
        request.headers_mut().insert(HOST, authority);
        let agent = HeaderValue::from_static(concat!("sandcove/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, agent);
        let exchange = async {
            let (mut sender, connection) =
                http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
            // Ends with the body: the sender is dropped here, and the connection is not used again.
            tokio::spawn(connection);
            sender.send_request(request).await.map_err(|error| failed(&error))
        };
        timeout(HEAD_TIMEOUT, exchange).await.map_err(|_| failed(&"no response within 60 s"))?
    }

    async fn connect(&self, url: &Url) -> Result<Box<dyn Stream>> {
        let shown = host_of(url);
        let is_insecure = is_listed(&self.settings.insecure, &shown);
        let is_secure = match url.scheme() {
            "https" => true,
            "http" if is_insecure => false,
            "http" => {
                return Err(refused(format!(
                    "'{shown}' would be reached without TLS, which is only allowed for registries that the server lists as insecure"
                )));
            }
            _ => return Err(refused(format!("'{shown}' has a scheme other than http and https"))),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused(format!("the URL of '{shown}' has credentials")));
        }
        let port = url.port_or_known_default().unwrap_or(443);
        let is_free = self.settings.allow_private || is_insecure || is_listed(&self.settings.private, &shown);
        let addresses = self.look_up(url, port, &shown).await?;
        let mut last = None;
        for address in addresses {
            let is_public = (self.settings.is_public)(address.ip().to_canonical());
            if !is_public && !is_free {
                // As the last resort of a name that also has other addresses, this is not the interesting error.
                last = last.or_else(|| {
                    Some(refused(format!(
                        "'{shown}' has an address that is not on the internet, and the server does not list it as a private registry"
                    )))
                });
                continue;
            }
            match timeout(CONNECT_TIMEOUT, self.open(address, is_public && !is_free)).await {
                Ok(Ok(stream)) if is_secure => return Ok(Box::new(self.wrap(url, stream, &shown).await?)),
                Ok(Ok(stream)) => return Ok(Box::new(stream)),
                Ok(Err(error)) => {
                    last = Some(NetworkError::Failed(format!("cannot connect to '{shown}': {error}")));
                }
                Err(_) => {
                    last = Some(NetworkError::Failed(format!("cannot connect to '{shown}' within 10 s")));
                }
            }
        }
        Err(last.unwrap_or_else(|| NetworkError::Failed(format!("'{shown}' has no address"))))
    }

    async fn open(&self, address: SocketAddr, is_guarded: bool) -> io::Result<TcpStream> {
        let socket = match self.settings.guard.as_ref().filter(|_| is_guarded) {
            Some(guard) => guard(address.is_ipv6()).await?,
            None if address.is_ipv4() => TcpSocket::new_v4()?,
            None => TcpSocket::new_v6()?,
        };
        socket.connect(address).await
    }

    async fn look_up(&self, url: &Url, port: u16, shown: &str) -> Result<Vec<SocketAddr>> {
        let found = |ip: IpAddr| Ok(vec![SocketAddr::new(ip, port)]);
        match url.host() {
            Some(Host::Ipv4(address)) => found(address.into()),
            Some(Host::Ipv6(address)) => found(address.into()),
            Some(Host::Domain(name)) => {
                let look_up = timeout(CONNECT_TIMEOUT, tokio::net::lookup_host((name, port)));
                match look_up.await {
                    Ok(Ok(addresses)) => Ok(addresses.collect()),
                    Ok(Err(error)) => Err(NetworkError::Failed(format!(
                        "the name of '{shown}' cannot be resolved: {error}"
                    ))),
                    Err(_) => Err(NetworkError::Failed(format!(
                        "the name of '{shown}' cannot be resolved within 10 s"
                    ))),
                }
            }
            None => Err(refused("a URL of the registry has no host".to_owned())),
        }
    }

    async fn wrap(&self, url: &Url, stream: TcpStream, shown: &str) -> Result<impl Stream + use<>> {
        let name = match url.host() {
            Some(Host::Ipv4(address)) => ServerName::from(IpAddr::from(address)),
            Some(Host::Ipv6(address)) => ServerName::from(IpAddr::from(address)),
            Some(Host::Domain(name)) => ServerName::try_from(name.to_owned())
                .map_err(|_| refused(format!("a certificate cannot be for '{shown}'")))?,
            None => return Err(refused("a URL of the registry has no host".to_owned())),
        };
        let connector = self.tls.get_or_try_init(connector).await?;
        let failed = |why: String| NetworkError::Failed(format!("no TLS connection to '{shown}': {why}"));
        timeout(CONNECT_TIMEOUT, connector.connect(name, stream))
            .await
            .map_err(|_| failed("no answer within 10 s".to_owned()))?
            .map_err(|error| failed(error.to_string()))
    }
}

/// Reason why a body was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("no data for 60 s")]
    Idle,
    #[error("the connection broke: {0}")]
    Broken(hyper::Error),
    #[error("the answer has more than {0} bytes")]
    TooLong(u64),
}

/// Reads a body of at most `limit` bytes.
pub(super) async fn read(
    mut response: Response<Incoming>,
    limit: u64,
) -> std::result::Result<Bytes, BodyError> {
    let mut body = BytesMut::new();
    loop {
        let frame = timeout(IDLE_TIMEOUT, response.body_mut().frame());
        match frame.await.map_err(|_| BodyError::Idle)? {
            Some(Ok(frame)) => body.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref())),
            Some(Err(error)) => return Err(BodyError::Broken(error)),
            None => return Ok(body.freeze()),
        }
        if body.len() as u64 > limit {
            return Err(BodyError::TooLong(limit));
        }
    }
}

/// Host of a URL, with its port if that is not the scheme's.
pub(super) fn host_of(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => String::new(),
    }
}

fn is_listed(list: &[String], host: &str) -> bool {
    list.iter().any(|entry| entry.eq_ignore_ascii_case(host))
}

fn refused(text: String) -> NetworkError {
    NetworkError::Refused(text)
}

async fn connector() -> Result<TlsConnector> {
    let read = tokio::task::spawn_blocking(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| NetworkError::Failed(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    });
    read.await.unwrap_or_else(|error| Err(NetworkError::Failed(error.to_string())))
}
