//! The in-sandbox daemon. It speaks the envd protocol on the public port (contract: envd), takes settings from the host
//! on unix sockets ([`sandcove_wire::boot`]), runs the sandbox's processes and, as PID 1, reaps orphans.
//!
//! A start, as PID 1: [`boot::run_sandbox`] reads the `Boot` message, opens the ports, starts the services, warms up for the pool,
//! and acknowledges; it waits for the `Assignment`, takes the identity and settings in it, and acknowledges again.
//!
//! Each module uses only those below it:
//!
//! ```text
//! boot                       the start, as PID 1 or by hand
//! server                     listeners, and the pipeline that every request goes through
//! process, files, watch      the services, with filesystem
//! step                       the work of template builds, without the daemon
//! filesystem
//! rpc                        the Connect protocol
//! state                      the settings, and the account and deadline of a request
//! path, spawn                paths of requests; starting and reaping processes
//! facts, trust               files that describe the sandbox inside; certificates of the host
//! account, error             users and groups; errors of requests
//! ```

pub mod account;
pub mod boot;
pub mod error;
mod facts;
pub mod files;
pub mod filesystem;
#[cfg(any(test, fuzzing, debug_assertions))]
pub mod fuzzing;
pub mod path;
pub mod process;
pub mod rpc;
pub mod server;
pub mod spawn;
pub mod state;
pub mod step;
mod trust;
pub mod watch;
