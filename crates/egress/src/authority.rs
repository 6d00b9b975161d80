//! The certificate authority of an installation, with which requests over TLS to hosts with rules are read. Sandboxes with such rules trust
//! it, and nobody else. Its key is root's, and in the process of the egress proxies.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use sandcove_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use tokio_rustls::rustls::crypto::ring::sign::any_supported_type;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};
use tokio_rustls::rustls::sign::CertifiedKey;

/// Number of certificates that are kept, before all are made anew.
const MAX_KEPT: usize = 1024;

/// A certificate authority.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Authority {
    /// Certificate of the authority, PEM.
    pub certificate: String,
    /// Key of the authority, PEM.
    pub key: Secret,
}

impl Authority {
    /// Makes an authority.
    ///
    /// # Errors
    /// An error if no key can be made.
    pub fn generate() -> io::Result<Self> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = (date_time_ymd(2024, 1, 1), date_time_ymd(2049, 12, 31));
        params.distinguished_name = named("Sandcove egress");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(io::Error::other)?;
        Ok(Self { certificate: certificate.pem(), key: Secret::new(key.serialize_pem()) })
    }
}

/// Issues certificates for hosts, and keeps them. Their key is in memory only.
pub(crate) struct Issuing {
    issuer: Issuer<'static, KeyPair>,
    authority: CertificateDer<'static>,
    key: KeyPair,
    kept: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

impl Issuing {
    pub(crate) fn new(authority: &Authority) -> io::Result<Self> {
        let key = KeyPair::from_pem(authority.key.expose()).map_err(io::Error::other)?;
        let certificate =
            CertificateDer::from_pem_slice(authority.certificate.as_bytes()).map_err(io::Error::other)?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(io::Error::other)?;
        let key = KeyPair::generate().map_err(io::Error::other)?;
        Ok(Self { issuer, authority: certificate, key, kept: Mutex::default() })
    }

    /// A certificate for `host`.
    pub(crate) fn certificate(&self, host: &str) -> io::Result<Arc<CertifiedKey>> {
        if let Some(kept) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(host) {
            return Ok(kept.clone());
        }
        let mut params = CertificateParams::new([host.to_owned()]).map_err(io::Error::other)?;
        (params.not_before, params.not_after) = (date_time_ymd(2024, 1, 1), date_time_ymd(2049, 12, 31));
        // A name of 64 characters is the longest that a common name may be.
        params.distinguished_name = named(if host.len() <= 64 { host } else { "host" });
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let leaf = params.signed_by(&self.key, &self.issuer).map_err(io::Error::other)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let key = any_supported_type(&key).map_err(io::Error::other)?;
        let certified = Arc::new(CertifiedKey::new(vec![leaf.der().clone(), self.authority.clone()], key));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(host.to_owned(), certified.clone());
        Ok(certified)
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}
