//! Traffic of sandboxes: telling it from API calls, finding its sandbox, and passing it on unbuffered (contract:
//! control-plane, sections 14 and 15.4; envd, section 9).

pub(crate) mod body;
pub(crate) mod error_page;
mod forward;
mod gate;
pub(crate) mod host_route;
pub(crate) mod pool;
mod signature;
mod tls;
mod upgrade;

pub(crate) use forward::{local_uri, serve};

/// Why traffic does not reach a sandbox. The texts are what clients look for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{0}")]
    BadAddress(&'static str),
    #[error("this path is reserved for the E2B control plane")]
    ControlRoute(String),
    /// Unknown, killed, or paused and not to be woken; the id may be empty when the request names none.
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
    #[error("The sandbox is paused and this request may not resume it")]
    WakeForbidden(String),
    #[error("The sandbox is changing its state, try again")]
    InTransition(String),
    #[error("The sandbox is paused and the team runs as many sandboxes as it may")]
    TeamLimit(String, u32),
    #[error("The sandbox could not be reached")]
    Failed(String),
}

/// What a refused caller can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Html,
}
