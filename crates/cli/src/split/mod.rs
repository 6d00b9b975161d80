//! A server in two processes. The *host process* is root, parses nothing that strangers send to the server, and executes the requests
//! of [`sandcove_host`]. The *server process*, `sandcove __server`, is everything else, and has no privileges.
//!
//! ```text
//!  host process                                server process
//!    | locks, binds, builds templates
//!    | starts it with a socket as standard input ->|
//!    |                                             | gives up its rights: an account, a root directory, no capabilities
//!    |-- Requests, with a connection ------------->|
//!    |-- Directory, with the lock of its files --->|
//!    |-- Listener, with a listener, for each ----->|
//!    |-- Start ----------------------------------->|
//!    |                                             | opens the database, recovers sandboxes
//!    |<- Ready, or Failed -------------------------|
//!    | writes `server.json`                        | serves
//!    |-- Switch, when the languages are built ---->|
//!    |<- Switched ---------------------------------|
//!    |-- Certificate, when files have changed ---->|
//!    |-- Stop, after a signal -------------------->|
//!    | waits                                       ends
//! ```
//!
//! When one of them ends, so does the other. Sandboxes go on, and the next server adopts them.

mod host_process;
mod server_process;

use sandcove_server::tls::Certificate;
use sandcove_wire::secret::Secret;
use serde::{Deserialize, Serialize};

use crate::host::{Start, Stop};
use crate::languages::Switch;

pub use host_process::Split;
pub use server_process::run;

/// A message to the server process, over its standard input. (Requests have a connection of their own: [`sandcove_host`].)
#[derive(Debug, Serialize, Deserialize)]
enum ToServer {
    /// The connection for requests comes along.
    Requests,
    /// The lock of the server's directory comes along, to be kept.
    Directory,
    /// A listener comes along.
    Listener(Listens),
    /// Everything else that a server needs to start.
    Start(Box<Start>),
    /// The listener is to show another certificate.
    Certificate(Box<Certificate>),
    /// The layer with R, Java and Ruby is built.
    Switch(Box<Switch>),
    /// The server is to stop.
    Stop(Stop),
}

/// Purpose of a listener.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Listens {
    /// Requests, at the address that clients are given.
    Main,
    /// Requests too.
    Second,
    /// Plain HTTP, which is redirected.
    Redirect,
    /// Questions of DNS in datagrams.
    Dns,
    /// Questions of DNS over connections.
    DnsStream,
}

/// A message to the host process.
#[derive(Debug, Serialize, Deserialize)]
enum ToHost {
    /// The server accepts connections; programs on this machine use the key.
    Ready(Secret),
    /// The server cannot start, for this reason.
    Failed(String),
    /// Whether the switch was made, or why not.
    Switched(Result<(), String>),
}
