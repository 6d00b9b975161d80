//! The reasons for which traffic does not reach its sandbox (contract: envd, section 9).

/// The reason for which traffic does not reach a sandbox. Clients look for these texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{0}")]
    BadAddress(&'static str),
    #[error("this path is reserved for the E2B control plane")]
    ControlRoute(String),
    /// The sandbox is unknown, killed, or paused and may not be resumed by traffic. The id is empty when the request names none.
    #[error("The sandbox was not found")]
    NotFound(String),
    #[error("The sandbox is running but port is not open")]
    PortClosed(String, u16),
    #[error(
        "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"
    )]
    TokenMissing(String),
    #[error(
        "Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid"
    )]
    TokenInvalid(String),
    /// The code interpreter runs code only for clients with the sandbox's token.
    #[error("The code interpreter of this sandbox needs the sandbox's token in the header 'X-Access-Token'")]
    InterpreterToken(String),
    #[error("The sandbox is paused and this request may not resume it")]
    WakeForbidden(String),
    #[error("The sandbox is changing its state, try again")]
    InTransition(String),
    /// The server is being stopped; the sandbox stays as it is.
    #[error("The server is stopping, try again")]
    Stopping(String),
    #[error("The sandbox is paused and the team runs as many sandboxes as it may")]
    TeamLimit(String, u32),
    /// The maximum number of connections to the sandbox, the sandboxes of its team, or all sandboxes is in use.
    #[error("As many connections are in use as this sandbox, its team or all sandboxes may have, try again")]
    TooManyConnections(String, usize),
    /// A front proxy could take such an answer for a tunnel.
    #[error("The service switched to another protocol without being asked")]
    UnaskedUpgrade(String, u16),
    #[error("The sandbox could not be reached")]
    Failed(String),
}

/// The format that a refused client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Html,
}
