//! Connections to hosts with rules: their requests are read, and get headers. TLS ends here, with a certificate of the installation's
//! authority, and begins again towards the host, whose certificate has to be valid.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::sign::SingleCertAndKey;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{LazyConfigAcceptor, TlsConnector};

use crate::authority::Issuing;
use crate::outside::Outside;
use crate::prefixed::Prefixed;
use crate::requested_host::host_name;

/// Timeout for each handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// Timeout for the head of a request.
const HEAD: Duration = Duration::from_secs(60);
/// Maximum size of the head of a request, bytes.
const MAX_HEAD: usize = 64 << 10;
/// Maximum number of requests at once in one connection of HTTP/2.
const MAX_STREAMS: u32 = 100;
/// Bytes that a peer may send ahead, in one request and in a connection of HTTP/2.
const WINDOWS: (u32, u32) = (256 << 10, 1 << 20);
const H2: &[u8] = b"h2";
const H1: &[u8] = b"http/1.1";

type Body = Either<Incoming, Full<Bytes>>;
type Answer = Response<Body>;

/// Means to intercept connections: certificates for hosts, and the authorities that hosts are verified against.
pub(crate) struct Interception {
    issuing: Issuing,
    roots: Arc<RootCertStore>,
}

/// Headers for requests to one host.
pub(crate) struct Transform {
    /// Name of the host.
    pub(crate) host: String,
    /// Makes the headers of a request; without them, it is refused.
    pub(crate) headers: Box<dyn Fn() -> io::Result<HeaderMap> + Send + Sync>,
}

impl Interception {
    pub(crate) fn new(issuing: Issuing, roots: Arc<RootCertStore>) -> Self {
        Self { issuing, roots }
    }

    /// The certificate authorities that the server trusts.
    pub(crate) fn roots(&self) -> &Arc<RootCertStore> {
        &self.roots
    }

    /// Passes on the requests of a connection to `transform.host`, of which `read` has been read already.
    pub(crate) async fn pass<I>(
        &self,
        inside: I,
        read: Vec<u8>,
        outside: Outside,
        is_tls: bool,
        transform: Transform,
    ) -> io::Result<()>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let inside = Prefixed::new(read, inside);
        if !is_tls {
            return pass_http(inside, outside, false, transform).await;
        }
        let start = timeout(HANDSHAKE, LazyConfigAcceptor::new(Default::default(), inside)).await??;
        let offered: Vec<&[u8]> = start.client_hello().alpn().into_iter().flatten().collect();
        let offered = [H2, H1].into_iter().filter(|one| offered.contains(one)).map(<[u8]>::to_vec).collect();
        let name = ServerName::try_from(transform.host.clone()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::new(self.client(offered)?));
        let outside = timeout(HANDSHAKE, connector.connect(name, outside)).await??;
        // Both sides speak what the host has chosen.
        let chosen = outside.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        let is_h2 = chosen.as_deref() == Some(H2);
        let config = self.server(&transform.host, chosen)?;
        let inside = timeout(HANDSHAKE, start.into_stream(Arc::new(config))).await??;
        pass_http(inside, outside, is_h2, transform).await
    }

    fn client(&self, protocols: Vec<Vec<u8>>) -> io::Result<ClientConfig> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = protocols;
        Ok(config)
    }

    fn server(&self, host: &str, protocol: Option<Vec<u8>>) -> io::Result<ServerConfig> {
        let certificate = SingleCertAndKey::from(self.issuing.certificate(host)?);
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(certificate));
        config.alpn_protocols = protocol.into_iter().collect();
        Ok(config)
    }
}

/// Passes on requests until one side ends.
async fn pass_http<I, O>(inside: I, outside: O, is_h2: bool, transform: Transform) -> io::Result<()>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    O: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (inside, outside) = (TokioIo::new(inside), TokioIo::new(outside));
    let transform = Arc::new(transform);
    if is_h2 {
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .handshake(outside)
            .await
            .map_err(io::Error::other)?;
        let service = service_fn(move |request| {
            let (mut sender, transform) = (sender.clone(), transform.clone());
            async move {
                match transform.apply(request) {
                    Ok(request) => Ok(sender.send_request(request).await?.map(Either::Left)),
                    Err(refusal) => Ok::<Answer, hyper::Error>(refusal.answer()),
                }
            }
        });
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEAD as u32)
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .serve_connection(inside, service);
        let mut serving = std::pin::pin!(serving);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            served = &mut serving => return served.map_err(io::Error::other),
            _ = &mut connection => serving.as_mut().graceful_shutdown(),
        }
        return serving.await.map_err(io::Error::other);
    }
    let (sender, connection) = hyper::client::conn::http1::Builder::new()
        .preserve_header_case(true)
        .handshake(outside)
        .await
        .map_err(io::Error::other)?;
    let sender = Arc::new(tokio::sync::Mutex::new(sender));
    let switch = Arc::<Switch>::default();
    let switches = switch.clone();
    let service = service_fn(move |request| {
        let (sender, transform, switch) = (sender.clone(), transform.clone(), switches.clone());
        async move {
            match transform.apply(request) {
                Ok(request) => forward(&mut *sender.lock().await, request, &switch).await,
                Err(refusal) => Ok(refusal.answer()),
            }
        }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD)
        .preserve_header_case(true)
        .half_close(true)
        .serve_connection(inside, service)
        .with_upgrades();
    let mut serving = std::pin::pin!(serving);
    let mut connection = std::pin::pin!(connection.with_upgrades());
    let mut has_ended = false;
    tokio::select! {
        served = &mut serving => served.map_err(io::Error::other)?,
        _ = &mut connection => {
            has_ended = true;
            // Unless another protocol begins, the host has closed it: the client is to open another one for its next request.
            if !switch.is_asked.load(Ordering::Relaxed) {
                serving.as_mut().graceful_shutdown();
            }
            serving.await.map_err(io::Error::other)?;
        }
    }
    let upgrade = switch.upgrade.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(Upgrade { inside, outside }) = upgrade else { return Ok(()) };
    let (mut inside, mut outside) = tokio::select! {
        both = async { Ok::<_, hyper::Error>((inside.await?, outside.await?)) } => {
            let (inside, outside) = both.map_err(io::Error::other)?;
            (TokioIo::new(inside), TokioIo::new(outside))
        }
        Err(error) = &mut connection, if !has_ended => return Err(io::Error::other(error)),
    };
    copy_bidirectional(&mut inside, &mut outside).await.map(drop)
}

/// Whether a connection switches to another protocol, as for a websocket.
#[derive(Default)]
struct Switch {
    /// A request asks for it, and the host has not declined.
    is_asked: AtomicBool,
    upgrade: Mutex<Option<Upgrade>>,
}

/// Both ends of a connection that switches.
struct Upgrade {
    inside: OnUpgrade,
    outside: OnUpgrade,
}

/// Sends a request of HTTP/1.1, and notes when the host switches to another protocol.
async fn forward(
    sender: &mut hyper::client::conn::http1::SendRequest<Incoming>,
    mut request: Request<Incoming>,
    switch: &Switch,
) -> Result<Answer, hyper::Error> {
    let wants_upgrade = request.headers().contains_key(UPGRADE);
    switch.is_asked.store(wants_upgrade, Ordering::Relaxed);
    let inside = wants_upgrade.then(|| hyper::upgrade::on(&mut request));
    let mut response = sender.send_request(request).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(inside) = inside
    {
        let outside = hyper::upgrade::on(&mut response);
        *switch.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(Upgrade { inside, outside });
    } else {
        switch.is_asked.store(false, Ordering::Relaxed);
    }
    Ok(response.map(Either::Left))
}

impl Transform {
    /// Gives a request its headers, or refuses it.
    fn apply(&self, mut request: Request<Incoming>) -> Result<Request<Incoming>, Refusal> {
        if requested(&request).as_deref() != Some(&*self.host) {
            let text = format!("this connection is for {} only\n", self.host);
            return Err(Refusal(StatusCode::MISDIRECTED_REQUEST, text));
        }
        let headers = match (self.headers)() {
            Ok(headers) => headers,
            Err(reason) => {
                let text =
                    format!("the rule of this sandbox for {} cannot be applied: {reason}\n", self.host);
                return Err(Refusal(StatusCode::BAD_GATEWAY, text));
            }
        };
        for (name, value) in &headers {
            request.headers_mut().insert(name, value.clone());
        }
        Ok(request)
    }
}

/// The host that a request names, if it names one.
fn requested<B>(request: &Request<B>) -> Option<String> {
    let by_header = match request.headers().get_all(HOST).iter().collect::<Vec<_>>()[..] {
        [] => None,
        [host] => Some(name(host.to_str().ok()?)?),
        _ => return None,
    };
    let by_uri = match request.uri().authority() {
        Some(authority) => Some(host_name(authority.host())?),
        None => None,
    };
    match (by_header, by_uri) {
        (Some(header), Some(uri)) if header != uri => None,
        (None, None) if request.version() == Version::HTTP_10 => None,
        (header, uri) => uri.or(header),
    }
}

fn name(host: &str) -> Option<String> {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host_name(name),
        Some(_) => None,
        None => host_name(host),
    }
}

/// A refused request: the status and the text of its answer.
struct Refusal(StatusCode, String);

impl Refusal {
    fn answer(self) -> Answer {
        let mut answer = Response::new(Either::Right(Full::new(Bytes::from(self.1))));
        *answer.status_mut() = self.0;
        answer
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_one_host_in_one_way() {
        let named = |uri: &str, hosts: &[&str]| {
            let mut request = Request::builder().uri(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            requested(&request.body(()).unwrap())
        };
        let expected = Some("example.com".to_owned());
        assert_eq!(named("/", &["Example.com:8080"]), expected);
        assert_eq!(named("https://example.com/a", &[]), expected);
        assert_eq!(named("https://example.com/a", &["example.com"]), expected);
        assert_eq!(named("https://example.com/a", &["example.org"]), None);
        assert_eq!(named("/", &["example.com", "example.com"]), None);
        assert_eq!(
            (named("/", &[]), named("/", &["example.com:x"]), named("/", &["1.2.3.4"])),
            (None, None, None)
        );
    }
}
