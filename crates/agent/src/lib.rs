//! The in-sandbox daemon. It speaks the envd protocol on the public port (contract: envd), takes settings from the host
//! on a unix socket, runs the sandbox's processes and, as PID 1, looks after all that is left behind by others.
//!
//! Read `server` for how a request travels, `rpc` for the Connect protocol, `process` and `filesystem` for the services.

use std::net::Ipv4Addr;

pub mod account;
pub mod boot;
mod drained;
pub mod files;
pub mod filesystem;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod path;
pub mod process;
pub mod rpc;
pub mod server;
pub mod spawn;
pub mod state;
pub mod watch;

/// Where a sandbox asks who it is; the host puts it on the loopback device (contract: envd, section 6).
pub const EVENTS_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
