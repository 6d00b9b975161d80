//! A certificate as data, on its way from where it is kept to the listener.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::Error;

/// A certificate with its key, as another process may send it. `Debug` shows neither.
#[derive(Clone, Serialize, Deserialize)]
pub struct Certificate {
    /// For clients that name a host.
    named: Pair,
    /// For those that name none, as when they connect to an address; the same when unset.
    unnamed: Option<Pair>,
}

/// A certificate chain and the key that belongs to it, both in DER.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Pair {
    chain: Vec<Vec<u8>>,
    key: Vec<u8>,
}

/// A certificate that handshakes can use.
#[derive(Clone)]
pub(super) struct Served {
    pub(super) named: Arc<CertifiedKey>,
    pub(super) unnamed: Arc<CertifiedKey>,
}

impl Pair {
    /// A chain with its key.
    ///
    /// # Errors
    /// When the two do not belong together, or the key is of a kind that is not supported.
    pub(super) fn new(
        chain: &[CertificateDer<'static>],
        key: &PrivateKeyDer<'static>,
    ) -> Result<Self, rustls::Error> {
        let chain = chain.iter().map(|certificate| certificate.to_vec()).collect();
        let pair = Self { chain, key: key.secret_der().to_vec() };
        pair.certified().map(|_| pair)
    }

    fn certified(&self) -> Result<CertifiedKey, rustls::Error> {
        let chain = self.chain.iter().map(|der| CertificateDer::from(der.clone())).collect();
        let key = PrivateKeyDer::try_from(self.key.clone())
            .map_err(|reason| rustls::Error::General(reason.to_owned()))?;
        CertifiedKey::from_der(chain, key, &ring::default_provider())
    }

    /// The certificate at the beginning of the chain.
    #[cfg(test)]
    pub(super) fn leaf(&self) -> CertificateDer<'_> {
        self.chain[0].as_slice().into()
    }
}

impl Certificate {
    /// A certificate for all clients, or one for those that name a host and another one for those that name none.
    pub(super) fn new(named: Pair, unnamed: Option<Pair>) -> Self {
        Self { named, unnamed }
    }

    /// Reads a certificate, those that lead to its authority, and its key from one PEM text. It may have expired.
    ///
    /// # Errors
    /// When a part is missing or damaged, or the key is that of another certificate.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        let damaged = |error: pem::Error| rustls::Error::General(error.to_string());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(damaged).map_err(Error::Rustls)?;
        let chain = chain.map_err(damaged).map_err(Error::Rustls)?;
        Ok(Self::new(Pair::new(&chain, &key).map_err(Error::Rustls)?, None))
    }

    /// Prepares the certificate for handshakes.
    pub(super) fn served(&self) -> Result<Served, rustls::Error> {
        let named = Arc::new(self.named.certified()?);
        let unnamed = match &self.unnamed {
            Some(unnamed) => Arc::new(unnamed.certified()?),
            None => named.clone(),
        };
        Ok(Served { named, unnamed })
    }

    /// The certificate for clients that name a host, and the one for others.
    #[cfg(test)]
    pub(super) fn pairs(&self) -> (&Pair, &Pair) {
        (&self.named, self.unnamed.as_ref().unwrap_or(&self.named))
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificate(..)")
    }
}
