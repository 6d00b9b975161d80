//! Egress proxies: connections out of sandboxes whose network policy has host names. They run in a process of their own, which has no
//! privileges and cannot make a socket: the host process gives it listeners, and sockets that the firewall guards.
//!
//! ```text
//!  serve                         what the host process says: which sandboxes there are, and their rules
//!  proxy                         the listener of a sandbox and its connections
//!  intercept, prefixed           requests to hosts with rules
//!  headers, keyring              what they get, with the values of secrets
//!  identity                      tokens that say which sandbox asks
//!  authority                     certificates for these hosts
//!  outside, socks                connections to hosts, directly or through a proxy of the user's
//!  log, counted                  who has connected where, and with how many bytes
//!  requested_host, client_hello  the first bytes of a connection
//!  resolver, dns_message         addresses of a name
//!  sockets                       asks the host process for sockets
//!  rules                         hosts, addresses and headers
//!  message                       what both processes tell each other
//! ```
#![forbid(unsafe_code)]

mod authority;
mod client_hello;
mod counted;
mod dns_message;
#[cfg(any(test, fuzzing, debug_assertions))]
pub mod fuzzing;
mod headers;
mod identity;
mod intercept;
mod keyring;
mod log;
mod message;
mod outside;
mod prefixed;
mod proxy;
mod requested_host;
mod resolver;
mod rules;
mod serve;
mod sockets;
mod socks;

pub use authority::Authority;
pub use identity::{PublicKey, SigningKeys};
pub use keyring::Keyring;
pub use log::Connection;
pub use message::{FromEgress, Question, Reply, SocketKind, ToEgress};
pub use outside::authorities;
pub use rules::{
    AddressRules, HostRule, Identity, NameServers, PLACEHOLDER_END, Rules, SECRET_PLACEHOLDER, SealedSecret,
    TOKEN_PLACEHOLDER, Upstream, UpstreamTls,
};
pub use serve::{roots, run};
