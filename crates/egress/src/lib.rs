//! Egress proxies: connections out of sandboxes whose network policy has host names. They run in a process of their own, which has no
//! privileges and cannot make a socket: the host process gives it listeners, and sockets that the firewall guards.
//!
//! ```text
//!  serve                         what the host process says: which sandboxes there are, and their rules
//!  proxy                         the listener of a sandbox and its connections
//!  requested_host, client_hello  the first bytes of a connection
//!  resolver, dns_message         addresses of a name
//!  sockets                       asks the host process for sockets
//!  keyring                       the keys that values of secrets are sealed with
//!  message                       what both processes tell each other
//! ```
#![forbid(unsafe_code)]

mod client_hello;
mod dns_message;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod keyring;
mod message;
mod proxy;
mod requested_host;
mod resolver;
mod serve;
mod sockets;

pub use keyring::Keyring;
pub use message::{FromEgress, NameServers, Rules, SocketKind, ToEgress};
pub use serve::run;
