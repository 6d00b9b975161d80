//! The host side of a sandbox: namespaces, cgroups, network slots, storage pool. It takes a [`SandboxSpec`] and gives a
//! [`Handle`]; it knows nothing of HTTP, teams or rows.
#![deny(unsafe_code)]

mod backend;
mod error;
pub mod fake;
pub mod namespaces;
mod spec;

pub use backend::{Backend, Handle, SweepReport};
pub use error::{Error, Result};
pub use spec::{ExitReason, Limits, NetworkPolicy, Record, SandboxSpec, Usage};
