//! The filesystem service without its watches (contract: envd, section 3): looking at entries, making, moving and
//! removing them.
//!
//! Everything runs with the agent's own rights; the account of a request only chooses the base of relative paths and
//! the owner of what is created. All of it blocks, so handlers hand it to the blocking pool as a whole.

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
