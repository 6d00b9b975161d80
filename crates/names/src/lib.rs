//! The public name of a server: it answers DNS for its domain, and has certificates issued for it by an authority that speaks ACME.
//! The two belong together: the authority checks the domain by a DNS record that this server answers with.
//!
//! ```text
//!  renewal                  when a certificate is ordered, and how often it is tried
//!  order                    one order, from the account to the certificate
//!  account, transport       the account, and requests to the authority
//!  state                    what is kept on disk, so that nothing is ordered twice
//!  serve                    sockets of DNS
//!  zone                     what the answers are
//!  limit                    how many answers a network gets
//!  message                  DNS messages
//!  settings                 what the operator chooses, and the records to add
//! ```
//!
//! All of it runs in the server process, which has no privileges: it parses what strangers and the authority send. The host process binds
//! port 53 and passes the sockets on.
#![forbid(unsafe_code)]

mod account;
mod error;
#[cfg(any(test, fuzzing, debug_assertions))]
pub mod fuzzing;
mod limit;
mod message;
mod order;
mod renewal;
mod serve;
mod settings;
mod state;
mod transport;
mod zone;

pub use error::Error;
pub use renewal::Renewal;
pub use serve::{DnsSockets, serve};
pub use settings::{Acme, Check, LETS_ENCRYPT, PROBE_ADDRESS, Settings, probe_name};
pub use zone::Zone;
