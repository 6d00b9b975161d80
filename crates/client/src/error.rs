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
    #[error("no answer from {}: {}", server_of(url), root(&**cause))]
    Unreachable {
        /// The request's URL.
        url: String,
        /// The cause. It is no source: the layers of an HTTP client between the request and the cause say nothing to a user.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server answered with an error of its own.
    #[error("{message}")]
    Refused {
        /// The request's URL.
        url: String,
        /// HTTP status.
        status: u16,
        /// The server's own words.
        message: String,
    },
    /// The answer is an error, but not one of a Sandcove server.
    #[error("{url} answered with HTTP status {status}: {message}")]
    Status {
        /// The request's URL.
        url: String,
        /// HTTP status.
        status: u16,
        /// The start of the body.
        message: String,
    },
    /// A remote procedure of the agent failed.
    #[error("{message}")]
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
            Self::Refused { status, .. } | Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// Scheme, host and port of a URL.
pub fn server_of(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    url[host..].find('/').map_or(url, |end| &url[..host + end])
}

/// What began a chain of errors.
fn root<'e>(error: &'e (dyn std::error::Error + 'static)) -> &'e (dyn std::error::Error + 'static) {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_named_with_the_cause() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "Connection refused");
        let layered = std::io::Error::other(std::io::Error::other(refused));
        let error = Error::Unreachable { url: "http://h:1/x?y".into(), cause: layered.into() };
        assert_eq!(error.to_string(), "no answer from http://h:1: Connection refused");
        assert!(std::error::Error::source(&error).is_none());
    }

    #[test]
    fn a_request_is_named_by_its_server() {
        assert_eq!(server_of("http://127.0.0.1:3000/v2/sandboxes?limit=1"), "http://127.0.0.1:3000");
        assert_eq!(server_of("http://127.0.0.1:3000"), "http://127.0.0.1:3000");
    }
}
