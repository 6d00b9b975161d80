//! Certificates of the listener. A [`Source`] has them: files that the operator renews, or an authority of this server's own. The listener
//! shows what it is given ([`Certificates`]), from a source in the same process or in another one, or from an authority that issues it while
//! the server runs.
//!
//! A certificate is replaced while the server runs: handshakes from then on use the new one, and no connection notices.

mod certificate;
mod error;
mod files;
mod local;
mod parsed;
mod source;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

pub use certificate::Certificate;
use certificate::Served;
pub use error::Error;
pub use local::{LOCAL_DOMAIN, LocalFiles};
pub use source::Source;

/// The protocols that are offered to clients of TLS, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The certificate that the listener shows. Clones share it.
#[derive(Clone)]
pub struct Certificates {
    current: Arc<Current>,
    config: Arc<ServerConfig>,
}

/// The certificate that handshakes use. Without one, they fail.
struct Current(RwLock<Option<Served>>);

impl Certificates {
    /// Begins with the certificate `first`.
    ///
    /// # Errors
    /// When the certificate and its key are not usable.
    pub fn new(first: &Certificate) -> Result<Self, Error> {
        Self::with(Some(first.served().map_err(Error::Rustls)?))
    }

    /// Has no certificate yet: clients of TLS are refused until there is one.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn awaited() -> Result<Self, Error> {
        Self::with(None)
    }

    fn with(first: Option<Served>) -> Result<Self, Error> {
        let current = Arc::new(Current(RwLock::new(first)));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(Error::Rustls)?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        // Clients that come back need no signature, and the server keeps nothing for them.
        config.ticketer = ring::Ticketer::new().map_err(Error::Rustls)?;
        Ok(Self { current, config: Arc::new(config) })
    }

    /// Uses `next` for handshakes from now on. A certificate that is not usable is logged, and changes nothing.
    pub fn replace(&self, next: &Certificate) {
        match next.served() {
            Ok(next) => {
                *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = Some(next);
                tracing::info!("new connections have a new certificate");
            }
            Err(error) => {
                tracing::error!(%error, "the certificate was not replaced; the old one stays in use");
            }
        }
    }

    /// Uses every new certificate of `source`. Never returns.
    pub async fn follow(self, source: Source) {
        loop {
            self.replace(&source.next().await);
        }
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.config.clone().into()
    }
}

impl ResolvesServerCert for Current {
    /// Chooses the same certificate for every name: requests are routed by their host alone.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let served = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let served = served.as_ref()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn local() -> Certificate {
        let directory = tempfile::tempdir().unwrap();
        Source::local(directory.path(), "sbx.localhost:3000").unwrap().read().unwrap()
    }

    #[test]
    fn nothing_of_a_key_shows() {
        let certificate = local();
        let certificates = Certificates::new(&certificate).unwrap();
        assert_eq!(format!("{certificates:?}"), "Certificates");
        assert_eq!(format!("{:?}", certificates.current), "Current");
        assert_eq!(format!("{certificate:?}"), "Certificate(..)");
    }

    #[test]
    fn what_another_process_sends_is_what_it_was() {
        let sent = local();
        let message = serde_json::to_vec(&sent).unwrap();
        let received: Certificate = serde_json::from_slice(&message).unwrap();
        let certificates = Certificates::new(&received).unwrap();
        let served = certificates.current.0.read().unwrap();
        let served = served.as_ref().unwrap();
        assert_eq!(served.named.cert[0], sent.pairs().0.leaf());
        assert_eq!(served.unnamed.cert[0], sent.pairs().1.leaf());
    }

    #[test]
    fn halves_of_two_pairs_change_nothing() {
        let certificates = Certificates::new(&local()).unwrap();
        let shown = || certificates.current.0.read().unwrap().as_ref().unwrap().named.clone();
        let before = shown();
        let (mut one, two) = (serde_json::to_value(local()).unwrap(), serde_json::to_value(local()).unwrap());
        one["named"]["key"] = two["named"]["key"].clone();
        certificates.replace(&serde_json::from_value(one).unwrap());
        assert!(Arc::ptr_eq(&before, &shown()));
        certificates.replace(&serde_json::from_value(two).unwrap());
        assert!(!Arc::ptr_eq(&before, &shown()));
    }
}
