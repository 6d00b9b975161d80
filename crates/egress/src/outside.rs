//! Connections to the outside: direct ones, and those through a proxy of the user's.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::set_socket_keepalive;
use sandcove_wire::secret::Secret;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::keyring::Keyring;
use crate::resolver::resolve;
use crate::rules::{NameServers, Upstream, UpstreamTls};
use crate::sockets::Sockets;
use crate::socks::{self, Target, User};

/// Timeout for connecting to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for a proxy to connect, with TLS and authentication.
const PROXY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of addresses to try.
const MAX_ATTEMPTS: usize = 4;

/// A connection to the outside, whatever it consists of.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}
pub(crate) type Outside = Box<dyn Stream>;

/// Connects to the first address that answers. The firewall refuses these sockets the addresses that sandboxes must not
/// reach.
pub(crate) async fn direct(addresses: &[Ipv4Addr], port: u16, sockets: &Sockets) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses.iter().take(MAX_ATTEMPTS) {
        let socket = sockets.tcp(false).await?;
        match timeout(CONNECT_TIMEOUT, socket.connect(SocketAddr::from((*address, port)))).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                // Without keep-alives, a peer that has disappeared is not noticed.
                set_socket_keepalive(&stream, true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

/// Has a proxy connect to `target`. Its own address is one that sandboxes may reach: the firewall guards the socket to it, too.
pub(crate) async fn through(
    upstream: &Upstream,
    resolvers: &[Ipv4Addr],
    target: Target<'_>,
    port: u16,
    sockets: &Sockets,
    keys: &Keyring,
    roots: &Arc<RootCertStore>,
) -> io::Result<Outside> {
    let connecting = async {
        let addresses = match upstream.host.parse() {
            Ok(address) => vec![address],
            Err(_) => {
                let servers = NameServers::Trusted(resolvers.to_vec());
                resolve(&upstream.host, &servers, sockets).await?
            }
        };
        let stream = direct(&addresses, upstream.port, sockets).await?;
        let mut stream: Outside = match &upstream.tls {
            Some(tls) => Box::new(wrap(stream, &upstream.host, tls, roots).await?),
            None => Box::new(stream),
        };
        let user = match &upstream.username {
            Some(name) => {
                let password = match &upstream.password {
                    Some(sealed) => keys.open(&sealed.context, &sealed.sealed)?,
                    None => Secret::new(""),
                };
                Some(User { name, password })
            }
            None => None,
        };
        socks::connect(&mut stream, user, target, port).await?;
        Ok(stream)
    };
    let connected: io::Result<Outside> =
        timeout(PROXY_TIMEOUT, connecting).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()));
    connected.map_err(|error| io::Error::new(error.kind(), format!("the egress proxy failed: {error}")))
}

async fn wrap(
    stream: TcpStream,
    host: &str,
    settings: &UpstreamTls,
    roots: &Arc<RootCertStore>,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let roots = match &settings.ca_cert {
        Some(pem) => Arc::new(authorities(pem)?),
        None => roots.clone(),
    };
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = settings.server_name.as_deref().unwrap_or(host).to_owned();
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Reads certificates of authorities, PEM.
///
/// # Errors
/// An error if there is none, or one of them cannot be read.
pub fn authorities(pem: &str) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    if roots.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "there is no certificate"));
    }
    Ok(roots)
}
