//! The filesystem service without its watches (contract: envd, section 3): describes, creates, moves and removes entries.
//!
//! Everything runs with the agent's own rights; the account of a request only determines the base of relative paths and the
//! owner of what is created. All of it blocks, so handlers run it on the blocking pool.

pub mod directories;
pub mod entry;
mod list;
pub mod metadata;
mod permissions;
mod relocate;
mod service;

pub use entry::Describer;
pub(crate) use list::check_directory;
pub(crate) use service::blocking;
pub use service::register;
