//! What can go wrong between here and a sandbox.

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure, named for what happened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server's address is not one this client can use.
    #[error("`{0}` is not the address of a server: use http://host:port")]
    Address(String),
    /// The server could not be reached, or hung up.
    #[error("no answer from {url}")]
    Unreachable {
        /// The request's URL.
        url: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server answered with an error.
    #[error("{url} answered {status}: {message}")]
    Status {
        /// The request's URL.
        url: String,
        /// HTTP status.
        status: u16,
        /// The server's own words, or the start of the body.
        message: String,
    },
    /// A remote procedure of the agent failed.
    #[error("the agent refused: {code}: {message}")]
    Rpc {
        /// Connect's code, e.g. `not_found`.
        code: String,
        /// The agent's own words.
        message: String,
    },
    /// An answer could not be read.
    #[error("unreadable answer from {url}: {reason}")]
    Malformed {
        /// The request's URL.
        url: String,
        /// What was wrong.
        reason: String,
    },
}

impl Error {
    /// The HTTP status, if that is what went wrong.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}
