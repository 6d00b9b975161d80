//! The host as the server sees it: everything that takes privileges is a request of one fixed menu ([`Host`]). The host side executes
//! the requests in the same process, or in another one at the end of a unix socket ([`serve`]).
//!
//! ```text
//!  host, sandbox, volume, image, archive
//!                                     what the server calls; typed
//!  link                               the way to the host side: this process, or a connection
//!  connection, service                both ends of a socket
//!  envelope, outcome                  messages as bytes
//!  gates                              bounds on what requests take at once
//!  menu                               executes a request
//!  reply                              an answer with what comes along
//!  message, failure                   requests, answers and failures as data
//! ```
//!
//! The host side trusts no request: it resolves names itself, and accepts no path that leads out of the pool.
#![forbid(unsafe_code)]

mod archive;
mod connection;
mod envelope;
mod failure;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gates;
mod host;
mod image;
mod link;
mod menu;
mod message;
mod outcome;
mod reply;
mod sandbox;
mod service;
mod space;
mod volume;

pub use archive::OpenFiles;
pub use host::{Host, Prepared};
pub use image::{ImageImport, ImageLease};
pub use message::Sizes;
pub use sandbox::Handle;
pub use service::serve;
pub use volume::{VolumeFiles, VolumeUpload};
