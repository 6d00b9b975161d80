//! Failures of certificates, in words for the operator who named the files.

use std::path::PathBuf;

use tokio_rustls::rustls;

/// A certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("failed to read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("failed to write `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file has no certificate.
    #[error("`{}` has no certificate: name a PEM file with the server's certificate and those that lead to its authority", .0.display())]
    NoCertificate(PathBuf),
    /// A file has no key that can be used.
    #[error("`{}` has no private key: name a PEM file with a key that needs no passphrase", .0.display())]
    NoKey(PathBuf),
    /// A certificate is damaged, or its key is of a kind that is not supported.
    #[error("the certificate in `{}` is invalid: {reason}", path.display())]
    Unusable {
        /// The file of the certificate.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The key is that of another certificate.
    #[error("the key in `{}` is not that of the certificate in `{}`: name two files that belong together", key.display(), certificate.display())]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The certificate is no longer valid.
    #[error("the certificate in `{}` expired on {on}: renew it, or check the clock of this host", path.display())]
    Expired {
        /// The file of the certificate.
        path: PathBuf,
        /// The day.
        on: String,
    },
    /// The certificate is not valid yet.
    #[error("the certificate in `{}` is valid from {from} only: check the clock of this host", path.display())]
    NotYetValid {
        /// The file of the certificate.
        path: PathBuf,
        /// The day.
        from: String,
    },
    /// The local authority was made for other names, and signs for no others.
    #[error(
        "the authority in `{}` signs for {names} only, not for {domain}: remove that file, start the server again, and run \
         `sandcove trust` on every client", path.display()
    )]
    OtherNames {
        /// The file of the authority.
        path: PathBuf,
        /// The names it signs for.
        names: String,
        /// The domain of the server.
        domain: String,
    },
    /// A certificate cannot be made.
    #[error("failed to make a certificate")]
    Issue(#[source] rcgen::Error),
    /// TLS cannot be set up.
    #[error("failed to set up TLS")]
    Rustls(#[source] rustls::Error),
}
