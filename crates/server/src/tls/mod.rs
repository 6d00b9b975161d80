//! Certificates of the listener: from files that the operator renews, or from an authority of this server's own.
//!
//! A certificate is replaced while the server runs: handshakes from then on use the new one, and no connection notices.

mod error;
mod files;
mod local;
mod parsed;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};

pub use error::Error;
use files::Files;
use local::Authority;
pub use local::{LOCAL_DOMAIN, LocalFiles};

/// Time between two looks at whether the certificate is still the right one.
const CHECK: Duration = Duration::from_secs(2);

/// The protocols that are offered to clients of TLS, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The certificate of the listener, and where the next one comes from. Clones share it.
#[derive(Clone)]
pub struct Certificates {
    source: Arc<Source>,
    current: Arc<Current>,
    config: Arc<ServerConfig>,
}

enum Source {
    Files(Files),
    Local(Box<Authority>),
}

/// The certificate that handshakes use.
struct Current(RwLock<Served>);

/// A certificate, for two kinds of clients.
#[derive(Clone)]
struct Served {
    /// For those that name a host.
    named: Arc<CertifiedKey>,
    /// For those that name none, as when they connect to an address.
    unnamed: Arc<CertifiedKey>,
}

impl From<CertifiedKey> for Served {
    fn from(certificate: CertifiedKey) -> Self {
        let named = Arc::new(certificate);
        Self { unnamed: named.clone(), named }
    }
}

impl Certificates {
    /// Reads a certificate chain and its key from PEM files, which are read again when they change. A certificate that is not for the
    /// names below `domain` is used all the same, with a warning.
    ///
    /// # Errors
    /// When a file cannot be read, the two do not belong together, or the certificate is not valid today.
    pub fn from_files(certificate: PathBuf, key: PathBuf, domain: Option<&str>) -> Result<Self, Error> {
        let files = Files::new(certificate, key, domain.map(host_of));
        let first = files.load()?.into();
        Self::new(Source::Files(files), first)
    }

    /// Issues a certificate for the names below `domain`, for `localhost` and for the loopback addresses. The authority that signs it is
    /// created in `directory` the first time.
    ///
    /// # Errors
    /// When the files of the authority cannot be read or written, or it may not sign for `domain`.
    pub fn local(directory: &Path, domain: &str) -> Result<Self, Error> {
        let authority = Authority::open(directory, host_of(domain))?;
        let first = authority.issue()?;
        Self::new(Source::Local(Box::new(authority)), first)
    }

    fn new(source: Source, first: Served) -> Result<Self, Error> {
        let current = Arc::new(Current(RwLock::new(first)));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(Error::Rustls)?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        // Clients that come back need no signature, and the server keeps nothing for them.
        config.ticketer = ring::Ticketer::new().map_err(Error::Rustls)?;
        Ok(Self { source: Arc::new(source), current, config: Arc::new(config) })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.config.clone().into()
    }

    /// Replaces the certificate whenever there is a newer one. Never returns.
    pub(crate) async fn keep_current(self) {
        loop {
            tokio::time::sleep(CHECK).await;
            let (source, current) = (self.source.clone(), self.current.clone());
            // Files may be on a slow disk.
            let check = move || match source.newer() {
                Ok(Some(next)) => {
                    current.set(next);
                    tracing::info!("new connections have a new certificate");
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "the certificate was not replaced; the old one stays in use"
                    );
                }
            };
            if tokio::task::spawn_blocking(check).await.is_err() {
                return;
            }
        }
    }
}

impl Source {
    /// The certificate to use from now on, if it is another one. A failure is reported once.
    fn newer(&self) -> Result<Option<Served>, Error> {
        match self {
            Self::Files(files) => files.changed().then(|| files.load().map(Served::from)).transpose(),
            Self::Local(authority) => authority.is_renewal_due().then(|| authority.issue()).transpose(),
        }
    }
}

impl Current {
    fn set(&self, next: Served) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
    }
}

impl ResolvesServerCert for Current {
    /// Chooses the same certificate for every name: requests are routed by their host alone.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let served = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(if hello.server_name().is_some() { &served.named } else { &served.unnamed }.clone())
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates")
    }
}

/// A domain without its port.
fn host_of(domain: &str) -> &str {
    domain.split_once(':').map_or(domain, |(host, _)| host)
}

/// A certificate chain with the key that belongs to it.
fn certified(
    chain: Vec<rustls::pki_types::CertificateDer<'static>>,
    key: rustls::pki_types::PrivateKeyDer<'static>,
) -> Result<CertifiedKey, rustls::Error> {
    CertifiedKey::from_der(chain, key, &ring::default_provider())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_key_shows() {
        let directory = tempfile::tempdir().unwrap();
        let certificates = Certificates::local(directory.path(), "sbx.localhost:3000").unwrap();
        assert_eq!(format!("{certificates:?}"), "Certificates");
        assert_eq!(format!("{:?}", certificates.current), "Current");
    }
}
