//! The control plane: REST API, sandbox drivers, store, and the proxy for sandbox traffic, on one port.
//!
//! [`App::start`] opens the store, finds the sandboxes of an earlier run again, and gives an [`App`] that can
//! [`App::serve`] on a listener. Statuses live in `http` only; `sandboxes` knows nothing of HTTP.
#![forbid(unsafe_code)]

mod activity;
mod app;
mod clock;
mod config;
mod connection;
mod error;
pub mod events;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod http;
mod node;
mod outbound;
mod proxy;
mod random;
pub mod sandboxes;
pub mod store;
pub mod teams;
mod telemetry;
pub mod templates;
pub mod traces;
pub mod volumes;

pub use app::App;
pub use config::Config;
pub use error::{Error, Result};
pub use http::{Route, routes};
