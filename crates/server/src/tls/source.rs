//! Where certificates come from.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::files::Files;
use super::local::Authority;
use super::{Certificate, Error};

/// Time between two looks at whether the certificate is still the right one.
const CHECK: Duration = Duration::from_secs(2);

/// Where certificates come from: files that the operator renews, or an authority of this server's own. It reads files that are root's, so
/// that it may be in another process than the listener. Clones are of the same.
#[derive(Clone)]
pub struct Source(Kind);

#[derive(Clone)]
enum Kind {
    Files(Arc<Files>),
    Local(Arc<Authority>),
}

impl Source {
    /// PEM files with a certificate chain and its key. A certificate that is not for the names below `domain` is used all the same, with
    /// a warning.
    pub fn files(certificate: PathBuf, key: PathBuf, domain: Option<&str>) -> Self {
        Self(Kind::Files(Arc::new(Files::new(certificate, key, domain.map(host_of)))))
    }

    /// An authority that issues certificates for the names below `domain`, for `localhost` and for the loopback addresses. It is created
    /// in `directory` the first time.
    ///
    /// # Errors
    /// When the files of the authority cannot be read or written, or it may not sign for `domain`.
    pub fn local(directory: &Path, domain: &str) -> Result<Self, Error> {
        Ok(Self(Kind::Local(Arc::new(Authority::open(directory, host_of(domain))?))))
    }

    /// Reads or issues a certificate.
    ///
    /// # Errors
    /// When a file cannot be read, the two do not belong together, or the certificate is not valid today.
    pub fn read(&self) -> Result<Certificate, Error> {
        match &self.0 {
            Kind::Files(files) => files.load(),
            Kind::Local(authority) => authority.issue(),
        }
    }

    /// Waits for a certificate that replaces the one that was read last. What is there and not usable is logged, once. Not
    /// cancellation-safe: a certificate may have been read and is lost.
    pub async fn next(&self) -> Certificate {
        loop {
            tokio::time::sleep(CHECK).await;
            let source = self.clone();
            // Files may be on a slow disk.
            match tokio::task::spawn_blocking(move || source.newer()).await {
                Ok(Ok(Some(next))) => return next,
                Ok(Ok(None)) => {}
                Ok(Err(error)) => tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the certificate was not replaced; the old one stays in use"
                ),
                // Only when the runtime stops.
                Err(_) => std::future::pending().await,
            }
        }
    }

    fn newer(&self) -> Result<Option<Certificate>, Error> {
        let is_newer = match &self.0 {
            Kind::Files(files) => files.changed(),
            Kind::Local(authority) => authority.is_renewal_due(),
        };
        is_newer.then(|| self.read()).transpose()
    }
}

/// A domain without its port.
fn host_of(domain: &str) -> &str {
    domain.split_once(':').map_or(domain, |(host, _)| host)
}
