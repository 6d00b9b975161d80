//! A certificate in files that somebody else renews.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use tokio_rustls::rustls::{self, InconsistentKeys};

use super::certificate::Pair;
use super::parsed::{Parsed, date, now};
use super::{Certificate, Error};

/// Time before its end at which a certificate is warned about, seconds.
const SOON: i64 = 14 * 24 * 3600;

/// The files of a certificate and its key.
pub(super) struct Files {
    certificate: PathBuf,
    key: PathBuf,
    domain: Option<String>,
    /// State of the files when they were read last.
    seen: Mutex<Option<[Stamp; 2]>>,
}

/// State of a file: another one has other numbers, also where a link leads to a new file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Self {
        std::fs::metadata(path).map_or_else(
            |_| Self::default(),
            |file| Self {
                device: file.dev(),
                inode: file.ino(),
                size: file.len(),
                modified: (file.mtime(), file.mtime_nsec()),
            },
        )
    }
}

impl Files {
    pub(super) fn new(certificate: PathBuf, key: PathBuf, domain: Option<&str>) -> Self {
        Self { certificate, key, domain: domain.map(str::to_owned), seen: Mutex::default() }
    }

    fn stamps(&self) -> [Stamp; 2] {
        [&self.certificate, &self.key].map(|path| Stamp::of(path))
    }

    /// Whether a file is another one than at the last [`Files::load`].
    pub(super) fn changed(&self) -> bool {
        let now = self.stamps();
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) != Some(now)
    }

    /// Reads both files.
    pub(super) fn load(&self) -> Result<Certificate, Error> {
        // Before the files: a change while they are read is one more change.
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.stamps());
        let chain = self.chain()?;
        let key =
            PrivateKeyDer::from_pem_slice(&read(&self.key)?).map_err(|_| Error::NoKey(self.key.clone()))?;
        let unusable = |reason| Error::Unusable { path: self.certificate.clone(), reason };
        let leaf = chain.first().ok_or_else(|| Error::NoCertificate(self.certificate.clone()))?;
        let parsed = Parsed::read(leaf).map_err(|error| unusable(error.to_string()))?;
        if parsed.not_after < now() {
            return Err(Error::Expired { path: self.certificate.clone(), on: date(parsed.not_after) });
        }
        if parsed.not_before > now() {
            return Err(Error::NotYetValid { path: self.certificate.clone(), from: date(parsed.not_before) });
        }
        let pair = Pair::new(&chain, &key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                Error::Mismatch { certificate: self.certificate.clone(), key: self.key.clone() }
            }
            other => unusable(other.to_string()),
        })?;
        self.warn(&parsed);
        Ok(Certificate::new(pair, None))
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        let text = read(&self.certificate)?;
        let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
        chain.map_err(|_| Error::NoCertificate(self.certificate.clone()))
    }

    /// Tells the operator what clients will complain about.
    fn warn(&self, parsed: &Parsed) {
        let path = self.certificate.display();
        if parsed.not_after < now() + SOON {
            tracing::warn!("the certificate in `{path}` expires on {}: renew it", date(parsed.not_after));
        }
        let Some(domain) = &self.domain else { return };
        for host in [format!("api.{domain}"), format!("49983-sandbox.{domain}")] {
            if !parsed.covers(&host) {
                let pattern = host.replacen("49983-sandbox", "*", 1);
                tracing::warn!("the certificate in `{path}` is not for `{pattern}`, which clients use");
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    struct Pair {
        dir: tempfile::TempDir,
    }

    impl Pair {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        /// Writes a certificate that is valid from and until so many hours from now, and its key.
        fn write(&self, hours: (i64, i64)) {
            let at = |hours: i64| {
                let span = Duration::from_secs(hours.unsigned_abs() * 3600);
                let now = SystemTime::now();
                if hours < 0 { now - span } else { now + span }
            };
            let mut params = CertificateParams::new(vec!["*.example.com".to_owned()]).unwrap();
            (params.not_before, params.not_after) = (at(hours.0).into(), at(hours.1).into());
            let key = KeyPair::generate().unwrap();
            std::fs::write(self.path("cert"), params.self_signed(&key).unwrap().pem()).unwrap();
            std::fs::write(self.path("key"), key.serialize_pem()).unwrap();
        }

        fn files(&self) -> Files {
            Files::new(self.path("cert"), self.path("key"), Some("example.com"))
        }

        fn error(&self) -> String {
            let text = self.files().load().unwrap_err().to_string();
            text.replace(&self.dir.path().display().to_string(), "D")
        }
    }

    #[test]
    fn every_fault_has_words_of_its_own() {
        let pair = Pair::new();
        assert_eq!(pair.error(), "failed to read `D/cert`");
        pair.write((-1, 1));
        assert!(pair.files().load().is_ok());
        std::fs::write(pair.path("key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
        assert!(pair.error().starts_with("the key in `D/key` is not that of the certificate in `D/cert`"));
        std::fs::write(pair.path("key"), "none").unwrap();
        assert!(pair.error().starts_with("`D/key` has no private key"), "{}", pair.error());
        pair.write((-1, 1));
        std::fs::write(pair.path("cert"), "none").unwrap();
        assert!(pair.error().starts_with("`D/cert` has no certificate"), "{}", pair.error());
        pair.write((-2, -1));
        assert!(pair.error().starts_with("the certificate in `D/cert` expired on 2"), "{}", pair.error());
        pair.write((1, 2));
        assert!(pair.error().starts_with("the certificate in `D/cert` is valid from 2"), "{}", pair.error());
    }

    #[test]
    fn another_file_is_noticed_once() {
        let pair = Pair::new();
        pair.write((-1, 1));
        let files = pair.files();
        assert!(files.changed());
        files.load().unwrap();
        assert!(!files.changed());
        std::fs::remove_file(pair.path("key")).unwrap();
        assert!(files.changed());
        assert!(files.load().is_err());
        assert!(!files.changed(), "a fault is reported once");
        pair.write((-1, 2));
        assert!(files.changed());
        files.load().unwrap();
    }

    #[test]
    fn a_wildcard_is_for_one_label() {
        let pair = Pair::new();
        pair.write((-1, 1));
        let parsed = Parsed::read(&pair.files().chain().unwrap()[0]).unwrap();
        assert!(parsed.covers("api.example.com") && parsed.covers("API.Example.com"));
        assert!(!parsed.covers("example.com") && !parsed.covers("a.b.example.com"));
    }
}
