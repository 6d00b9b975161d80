//! The control plane: REST API, sandbox drivers, store, and the proxy for sandbox traffic, on one port.
//!
//! [`App::start`] opens the store, recovers the sandboxes of an earlier run, and returns an [`App`] that can
//! [`App::serve`] on a listener.
//!
//! Modules import downwards only:
//!
//! ```text
//!  serve                                the listener; API or sandbox traffic
//!  http            proxy                API calls; sandbox traffic
//!  state                                what requests share: the App
//!  activity                             how busy teams are, over time
//!  sandboxes       templates  volumes   drivers of sandboxes; lookup of templates; files that outlive sandboxes
//!  events                               what is reported of sandboxes, and its delivery to webhooks
//!  store                                the database
//!  domain                               records, lifecycle policy, network rules; no I/O
//!  telemetry, traces, outbound          metrics; spans; requests that the server makes itself
//!  node, config, clock, random, error
//! ```
//!
//! Statuses are chosen in `http` and `proxy`; nothing below them knows of the requests that arrive there.
#![forbid(unsafe_code)]

mod activity;
mod clock;
mod config;
pub mod domain;
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
mod serve;
mod state;
pub mod store;
mod telemetry;
pub mod templates;
pub mod traces;
pub mod volumes;

pub use config::Config;
pub use error::{Error, Result};
pub use http::{Route, routes};
pub use state::App;
