//! The host as the server sees it: everything that takes privileges is a request of one fixed menu ([`Host`]). The host side executes
//! the requests in the same process, or in another one at the end of a unix socket ([`serve`]).
//!
//! ```text
//!  host, sandbox, volume, image, archive
//!                                     what the server calls; typed
//!  link                               the way to the host side: this process, or a connection
//!  connection, service                both ends of a socket
//!  envelope, outcome                  messages as bytes
//!  bounds                             what requests may take at once
//!  menu                               executes a request
//!  reply                              an answer, on the side of the server
//!  message, failure                   requests, answers and failures as data
//! ```
//!
//! The path of [`Host::create`] with two processes; in one process, `link` calls `menu` at once:
//!
//! ```text
//!  server process                         host process
//!  host, link, connection: `Request` ---> service, bounds, menu: checks names, calls `sandcove_isolate::Backend::create`,
//!                                         and keeps its `Handle` under a number (`menu/objects.rs`)
//!  reply: `Held`, a [`Handle`]      <---- the `Answer` with that number
//! ```
//!
//! So there are two types `Handle`. The one of this crate is the number and a link, and what the server works with; each of
//! its methods is a request. The one of `sandcove_isolate` has the processes, and never leaves the host side.
//!
//! The host side trusts no request: it resolves names itself, and accepts no path that leads out of the pool.
#![forbid(unsafe_code)]

mod archive;
mod bounds;
mod connection;
mod envelope;
mod failure;
#[cfg(any(test, fuzzing, debug_assertions))]
pub mod fuzzing;
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
