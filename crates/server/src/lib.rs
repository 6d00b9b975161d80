//! The control plane: REST API, sandbox drivers, store, and the proxy for sandbox traffic, on one port.
//!
//! [`App::start`] opens the store, recovers the sandboxes of an earlier run, and returns an [`App`] that can
//! [`App::serve`] on a listener.
//!
//! Modules import downwards only:
//!
//! ```text
//!  serve                                the listener; API or sandbox traffic
//!  dashboard       mcp                  pages for browsers, whose requests go on to the API and to sandboxes; tools of agents
//!  http            proxy                API calls; sandbox traffic
//!  state                                what requests share: the App
//!  activity                             how busy teams are, over time
//!  builds                               what templates are made from, step by step
//!  sandboxes  templates  volumes  secrets   drivers of sandboxes; lookup of templates; files that outlive sandboxes; values for
//!                                           requests of sandboxes
//!  events                               what is reported of sandboxes, and its delivery to webhooks
//!  store                                the database
//!  domain     audit     telemetry       records, lifecycle policy, network rules, no I/O; who did what; metrics
//!  otlp, node                           what a collector gets; the host
//!  outbound, config, clock, random, error
//!  fair                                 a share for each team, and a queue in which they take turns
//!  tls                                  certificates of the listener
//! ```
//!
//! The path of `POST /sandboxes`. Once the registry has the plan, a client that hangs up ends nothing, and neither does the
//! deadline of `http::router`:
//!
//! ```text
//!  serve                  `proxy::host_route` finds that the request is for the API: its host, headers and path decide. The
//!                         dashboard sees it first, and gives it back, as all that is not for it
//!  http::router           layers around all calls: cross-origin rules, a guard for secrets, panics, measurements, the audit log
//!  http::auth             `Caller`, an extractor: the team of the API key or access token, within its rate limit and, for reads, in its turn
//!  http::sandboxes        checks the body; the reference of a template, rules and volumes become a `CreatePlan`
//!  sandboxes::registry    runs the rest in a task of its own
//!  sandboxes::create      `queue`: counts the sandbox against its team's limit, waits for room on the host (`admission`)
//!                         `launch`: `sandcove_host::Host::create`, a request to the host process (see its `lib.rs`), where
//!                         `sandcove_isolate` takes a pooled sandbox, restores one or creates one (see its
//!                         `namespaces/create.rs` and `spawner/mod.rs`); the answer comes once the agent is ready
//!                         `record`: the row, the event and its deliveries, in one transaction
//!  sandboxes::driver      is registered, runs from now on as the only one that changes the sandbox, and publishes its `View`
//!  http::sandboxes        the view becomes the body of the answer
//! ```
//!
//! The path of a request to a port of a sandbox, as that of `run_code` to port 49999:
//!
//! ```text
//!  serve                  `proxy::host_route` finds the sandbox and the port, in the host or in headers
//!  proxy::forward         `serve`, the entry: refuses the agent's control routes, and gives clients before 1.0 to `proxy::legacy`
//!  proxy::access          compares the tokens for traffic and for the interpreter, and leaves the agent's token to the agent;
//!                         wakes a paused sandbox that may be woken, by a command to its driver
//!  proxy::forward         counts the connection against the sandbox's budget, withholds credentials of this server, takes an idle connection from the `LiveSession` of the view, or
//!                         opens one inside the sandbox's network namespace (`sandcove_host::Handle::connect`: the descriptor comes
//!                         from the host process), and passes both bodies on, frame by frame
//!  proxy::body            cuts the answer when the sandbox is paused or ends, and keeps the connection of one that was read whole
//! ```
//!
//! The `lib.rs` of the crates `agent` (port 49983) and `interpreter` (port 49999) say what becomes of it inside.
//!
//! Statuses are chosen in `http`, `proxy`, `mcp` and `dashboard`; nothing below them knows of the requests that arrive there.
#![forbid(unsafe_code)]

mod activity;
mod audit;
pub mod builds;
mod clock;
mod config;
mod dashboard;
pub mod domain;
mod error;
pub mod events;
mod fair;
#[cfg(any(test, fuzzing, debug_assertions))]
pub mod fuzzing;
mod http;
mod mcp;
mod memory;
mod node;
pub mod otlp;
mod outbound;
mod proxy;
mod random;
pub mod sandboxes;
mod secrets;
mod serve;
mod state;
pub mod store;
mod telemetry;
pub mod templates;
pub mod tls;
pub mod volumes;

pub use config::{Config, InterpreterToken, Registries, WarmMemory};
pub use error::{Error, Result};
pub use http::{Route, routes};
pub use serve::Listeners;
pub use state::App;
