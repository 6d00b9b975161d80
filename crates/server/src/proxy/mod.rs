//! Sandbox traffic: distinguished from API calls, authorized, and forwarded to its sandbox without buffering (contract:
//! control-plane, sections 14 and 15.4; envd, section 9).
//!
//! | part | files |
//! | --- | --- |
//! | the sandbox and port that a request is for | `host_route`, `signature` |
//! | whether it may pass | `access` |
//! | the exchange with the service | `forward`, `body`, `upgrade`, `tls`, `legacy` |
//! | requests that do not get there: why, and what is answered | `refusal`; `refused`, `error_page` |

mod access;
pub(crate) mod body;
pub(crate) mod error_page;
mod forward;
pub(crate) mod host_route;
mod legacy;
mod refusal;
mod refused;
mod signature;
mod tls;
mod upgrade;

pub(crate) use forward::{local_uri, serve};
pub(crate) use refusal::{Format, Refusal};
pub(crate) use refused::refused;
#[cfg(any(test, fuzzing, debug_assertions))]
pub(crate) use signature::SignedUrl;
