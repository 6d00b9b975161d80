//! A certificate authority of this server's own, for one machine or one team: it signs for a few names only, so that who trusts it
//! trusts it with nothing else.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::certificate::Pair;
use super::parsed::{Parsed, date, now};
use super::{Certificate, Error};

/// The domain of a server that only its own machine reaches. `*.localhost` leads to the machine itself, and a wildcard needs two
/// labels: clients refuse one for `*.localhost`.
pub const LOCAL_DOMAIN: &str = "sbx.localhost";

const DAY: u64 = 24 * 3600;
/// Time for which the authority is valid.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(3650 * DAY);
/// Time for which a certificate is valid. Some clients refuse more than 398 days.
const LIFETIME: Duration = Duration::from_secs(90 * DAY);
/// Time before its end at which a certificate is replaced, seconds.
const RENEWAL: i64 = 30 * DAY as i64;
/// Clocks of clients may be slow by as much.
const SLOW_CLOCKS: Duration = Duration::from_secs(DAY);

/// Bundles of the authorities that a host trusts: Debian's, and Fedora's.
const HOST_BUNDLES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// The files of a local authority, below a directory.
#[derive(Debug, Clone)]
pub struct LocalFiles {
    directory: PathBuf,
}

impl LocalFiles {
    /// The files below `directory`, whether they exist or not.
    pub fn below(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// The certificate of the authority, for clients that add to what they trust.
    pub fn certificate(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    /// The certificate together with what the host trusts, for clients that trust the authorities of one file only.
    pub fn bundle(&self) -> PathBuf {
        self.directory.join("bundle.pem")
    }

    fn key(&self) -> PathBuf {
        self.directory.join("ca.key")
    }
}

/// An authority, and the domain that it issues certificates for.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    domain: String,
    /// End of the certificate that was issued last, seconds since 1970.
    ends: AtomicI64,
}

impl Authority {
    /// Reads the authority in `directory`, or creates it.
    pub(super) fn open(directory: &Path, domain: &str) -> Result<Self, Error> {
        let files = LocalFiles::below(directory);
        if !files.certificate().exists() {
            create(&files, domain)?;
        }
        let path = files.certificate();
        let pem = read(&path)?;
        let unusable = |reason| Error::Unusable { path: path.clone(), reason };
        let certificate =
            CertificateDer::from_pem_slice(&pem).map_err(|_| Error::NoCertificate(path.clone()))?;
        let parsed = Parsed::read(&certificate).map_err(|error| unusable(error.to_string()))?;
        if parsed.not_after < now() {
            return Err(Error::Expired { path, on: date(parsed.not_after) });
        }
        let is_below = |name: &String| domain == name || domain.ends_with(&format!(".{name}"));
        if !parsed.permitted.is_empty() && !parsed.permitted.iter().any(is_below) {
            let names = parsed.permitted.join(", ");
            return Err(Error::OtherNames { path, names, domain: domain.to_owned() });
        }
        let key = String::from_utf8(read(&files.key())?).map_err(|_| Error::NoKey(files.key()))?;
        let key = KeyPair::from_pem(&key).map_err(|_| Error::NoKey(files.key()))?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(Error::Issue)?;
        write_bundle(&files, &pem)?;
        Ok(Self { issuer, certificate, domain: domain.to_owned(), ends: AtomicI64::new(0) })
    }

    /// Whether the certificate that was issued last comes to its end.
    pub(super) fn is_renewal_due(&self) -> bool {
        self.ends.load(Ordering::Relaxed) - RENEWAL <= now()
    }

    /// Issues a certificate for names, and one for addresses: BoringSSL, as in gRPC, refuses certificates with addresses in them when
    /// the authority is bound to some.
    pub(super) fn issue(&self) -> Result<Certificate, Error> {
        let names = [&self.domain, &format!("*.{}", self.domain), "localhost"];
        let addresses = ["localhost", "127.0.0.1", "::1"];
        Ok(Certificate::new(self.sign(&names)?, Some(self.sign(&addresses)?)))
    }

    /// Issues one certificate. Its key is nowhere but in memory.
    fn sign(&self, names: &[&str]) -> Result<Pair, Error> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).map_err(Error::Issue)?;
        validity(&mut params, LIFETIME);
        params.distinguished_name = named(&self.domain);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().map_err(Error::Issue)?;
        let leaf = params.signed_by(&key, &self.issuer).map_err(Error::Issue)?;
        let chain = [leaf.der().clone(), self.certificate.clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let pair = Pair::new(&chain, &key).map_err(Error::Rustls)?;
        self.ends.store(params.not_after.unix_timestamp(), Ordering::Relaxed);
        Ok(pair)
    }
}

/// Creates an authority for `domain` and for the machine itself.
fn create(files: &LocalFiles, domain: &str) -> Result<(), Error> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut params = CertificateParams::default();
    validity(&mut params, AUTHORITY_LIFETIME);
    params.distinguished_name = named(&format!("Sandcove of {}", host.trim()));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // Whoever gets hold of the key can pretend to be these names, and no others.
    let mut names = vec!["localhost".to_owned()];
    if !domain.ends_with(".localhost") {
        names.push(domain.to_owned());
    }
    let addresses = [
        CidrSubnet::from_addr_prefix(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
        CidrSubnet::V6(Ipv6Addr::LOCALHOST.octets(), [255; 16]),
    ];
    let names = names.into_iter().map(GeneralSubtree::DnsName);
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: names.chain(addresses.map(GeneralSubtree::IpAddress)).collect(),
        excluded_subtrees: Vec::new(),
    });
    let key = KeyPair::generate().map_err(Error::Issue)?;
    let certificate = params.self_signed(&key).map_err(Error::Issue)?;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&files.directory)
        .map_err(|source| Error::Write { path: files.directory.clone(), source })?;
    // The key first: a certificate is never without it.
    replace(&files.key(), key.serialize_pem().as_bytes(), 0o600)?;
    replace(&files.certificate(), certificate.pem().as_bytes(), 0o644)
}

fn validity(params: &mut CertificateParams, lifetime: Duration) {
    let now = SystemTime::now();
    params.not_before = (now - SLOW_CLOCKS).into();
    params.not_after = (now + lifetime).into();
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn write_bundle(files: &LocalFiles, authority: &[u8]) -> Result<(), Error> {
    let mut bundle = HOST_BUNDLES.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
    bundle.extend_from_slice(authority);
    replace(&files.bundle(), &bundle, 0o644)
}

/// Writes a file that is there as a whole or not at all.
fn replace(path: &Path, content: &[u8], mode: u32) -> Result<(), Error> {
    let unfinished = path.with_extension("new");
    let write = || {
        let _ = std::fs::remove_file(&unfinished);
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&unfinished)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)
    };
    write().map_err(|source| Error::Write { path: path.to_owned(), source })
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::{ServerName, UnixTime};
    use tokio_rustls::rustls::{RootCertStore, client::WebPkiServerVerifier};

    use super::*;

    fn is_trusted(authority: &Authority, name: &str) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.clone()).unwrap();
        let provider = std::sync::Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        let issued = authority.issue().unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let issued = match name {
            ServerName::DnsName(_) => issued.pairs().0,
            _ => issued.pairs().1,
        };
        let verifier: &dyn tokio_rustls::rustls::client::danger::ServerCertVerifier = &*verifier;
        verifier.verify_server_cert(&issued.leaf(), &[], &name, &[], UnixTime::now()).is_ok()
    }

    #[test]
    fn clients_that_trust_the_authority_reach_its_names_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::open(directory.path(), LOCAL_DOMAIN).unwrap();
        for name in ["api.sbx.localhost", "49983-iabc.sbx.localhost", "localhost", "127.0.0.1", "::1"] {
            assert!(is_trusted(&authority, name), "{name}");
        }
        for name in ["example.com", "a.b.sbx.localhost", "192.0.2.1"] {
            assert!(!is_trusted(&authority, name), "{name}");
        }
    }

    #[test]
    fn the_authority_cannot_be_used_for_other_names() {
        let directory = tempfile::tempdir().unwrap();
        let mut authority = Authority::open(directory.path(), LOCAL_DOMAIN).unwrap();
        authority.domain = "example.com".to_owned();
        assert!(!is_trusted(&authority, "api.example.com"));
        let error = Authority::open(directory.path(), "example.com").err().unwrap().to_string();
        assert!(error.contains("signs for localhost only, not for example.com"), "{error}");
        let other = tempfile::tempdir().unwrap();
        let authority = Authority::open(other.path(), "sbx.example.com").unwrap();
        assert!(is_trusted(&authority, "api.sbx.example.com"));
    }

    #[test]
    fn it_stays_the_same_and_its_key_is_for_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let first = Authority::open(directory.path(), LOCAL_DOMAIN).unwrap();
        let second = Authority::open(directory.path(), LOCAL_DOMAIN).unwrap();
        assert_eq!(first.certificate, second.certificate);
        let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let files = LocalFiles::below(directory.path());
        assert_eq!((mode(files.key()), mode(files.certificate())), (0o600, 0o644));
        assert!(read(&files.bundle()).unwrap().ends_with(&read(&files.certificate()).unwrap()));
    }

    #[test]
    fn a_certificate_is_renewed_in_time() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::open(directory.path(), LOCAL_DOMAIN).unwrap();
        assert!(authority.is_renewal_due());
        authority.issue().unwrap();
        assert!(!authority.is_renewal_due());
        authority.ends.fetch_sub(61 * DAY as i64, Ordering::Relaxed);
        assert!(authority.is_renewal_due());
    }
}
