//! Errors of imports. Their texts are for the client that chose the image (contract 11); they never contain credentials.

use std::io;
use std::path::PathBuf;

use super::Platform;
use super::layer::Limit;

/// Result of imports.
pub type Result<T> = std::result::Result<T, Error>;

/// Reason why an image could not be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The reference is not valid.
    #[error("invalid image reference '{reference}': {reason}")]
    Reference {
        /// Reference as given.
        reference: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// The registry has the repository, but not this tag or digest.
    #[error("image '{0}' not found: the image or tag does not exist in the registry")]
    UnknownTag(String),
    /// The registry does not have the repository.
    #[error("repository '{0}' not found: verify the image name is correct")]
    UnknownRepository(String),
    /// The registry refused access.
    #[error("access denied to '{0}': authentication required or insufficient permissions")]
    Denied(String),
    /// The registry answered with another error.
    #[error("failed to pull image '{image}': registry returned status code {status}")]
    Status {
        /// Reference as given.
        image: String,
        /// HTTP status.
        status: u16,
    },
    /// The registry cannot be reached, or an address of it may not be.
    #[error("failed to pull image '{image}': {reason}")]
    Unreachable {
        /// Reference as given.
        image: String,
        /// The failure, with the host.
        reason: String,
    },
    /// The image is for other machines.
    #[error("image '{image}' is for {found}, but this machine needs {wanted}; use an image for {wanted}")]
    Platform {
        /// Reference as given.
        image: String,
        /// Platforms of the image.
        found: String,
        /// Platform of this machine.
        wanted: Platform,
    },
    /// The image is larger than allowed.
    #[error("image '{image}' is too large: {what}, which is more than the limit of {limit}")]
    TooLarge {
        /// Reference as given.
        image: String,
        /// The size with what was counted, such as `its files have more than 25000 MB`.
        what: String,
        /// The limit.
        limit: Limit,
    },
    /// Something in the image is wrong or not supported.
    #[error("image '{image}' is not usable: {reason}")]
    Invalid {
        /// Reference as given.
        image: String,
        /// The fault and its location.
        reason: String,
    },
    /// Credentials of the request are not usable.
    #[error("{0}")]
    Credentials(String),
    /// The disk of the layers is full.
    #[error("image '{image}' does not fit: the disk of the layers is full")]
    Full {
        /// Reference as given.
        image: String,
    },
    /// A file of the host failed.
    #[error("failed to {action} `{path}`")]
    Host {
        /// Action that failed.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The layer store failed.
    #[error("failed to store the image")]
    Target(#[source] io::Error),
    /// The import was cancelled.
    #[error("the import was cancelled")]
    Cancelled,
}

impl Error {
    /// Whether the host, not the image or the request, is the reason. Such errors are for the log of the operator.
    pub fn is_internal(&self) -> bool {
        matches!(self, Self::Host { .. } | Self::Target(_) | Self::Full { .. } | Self::Cancelled)
    }

    /// Wraps the error of a file of the host, for `map_err`.
    pub(super) fn host(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Host { action, path: path.to_owned(), source }
    }
}
