//! CRIU, the program that stores processes on disk and restores them (docs/decisions/0025-memory-on-disk.md): where it is, and how it is
//! spoken to.

mod fields;
mod log;
mod probe;
mod program;
mod rpc;

pub(crate) use fields::{Fields, Value, decode, encode, invalid};
pub(crate) use log::first_error;
pub use probe::probe_criu;
pub(crate) use program::Program;
pub(crate) use rpc::{Message, RestoreOptions, reply, restore_request};
