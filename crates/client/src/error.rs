//! The errors of requests to a server or sandbox.

/// The result of a request.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address of the server is invalid.
    #[error("`{0}` is not the address of a server: use http://host:port or https://host")]
    Address(String),
    /// A key cannot be sent in a header.
    #[error(
        "`{0}` is not a key for a request that is sent once: use 1 to 255 characters `a-z`, `0-9` and `-`"
    )]
    IdempotencyKey(String),
    /// A variable of the environment is not set.
    #[error("{0} is not set: set it to a key of the team")]
    Variable(&'static str),
    /// The server could not be reached, or closed the connection.
    #[error("no answer from {}: {}", server_of(url), root(&**cause))]
    Unreachable {
        /// URL of the request.
        url: String,
        /// Cause of the failure. Not a `source`, as the layers of an HTTP client in between do not help a user.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer did not begin in time.
    #[error("no answer from {} within {} seconds", server_of(url), limit.as_secs())]
    Timeout {
        /// URL of the request.
        url: String,
        /// Limit on the time.
        limit: std::time::Duration,
    },
    /// The server answered with an error of its own.
    #[error("{message}")]
    Refused {
        /// URL of the request.
        url: String,
        /// HTTP status of the answer.
        status: u16,
        /// Message of the server.
        message: String,
    },
    /// The server does not accept the admin token.
    #[error("the server at {} does not accept the admin token", server_of(url))]
    AdminToken {
        /// URL of the request.
        url: String,
    },
    /// The answer is an error, but not one of a Sandcove server.
    #[error("{url} answered with HTTP status {status}: {message}")]
    Status {
        /// URL of the request.
        url: String,
        /// HTTP status of the answer.
        status: u16,
        /// Start of the body.
        message: String,
    },
    /// A remote procedure of the agent failed.
    #[error("{message}")]
    Rpc {
        /// Connect code, e.g. `not_found`.
        code: String,
        /// Message of the agent.
        message: String,
    },
    /// The received data could not be written.
    #[error("failed to write what was received: {0}")]
    Output(#[source] std::io::Error),
    /// An answer could not be read.
    #[error("unreadable answer from {url}: {reason}")]
    Malformed {
        /// URL of the request.
        url: String,
        /// Reason why it is unreadable.
        reason: String,
    },
    /// A line of an answer is longer than is read.
    #[error("unreadable answer from {url}: a line is longer than {} MiB", limit >> 20)]
    LongLine {
        /// URL of the request.
        url: String,
        /// Maximum length of a line, bytes.
        limit: usize,
    },
}

impl Error {
    /// The HTTP status, if the error is one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } | Self::Status { status, .. } => Some(*status),
            Self::AdminToken { .. } => Some(401),
            _ => None,
        }
    }
}

/// Scheme, host and port of a URL.
pub fn server_of(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    url[host..].find('/').map_or(url, |end| &url[..host + end])
}

/// The root cause of a chain of errors.
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
