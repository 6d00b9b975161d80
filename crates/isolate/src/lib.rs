//! The host side of a sandbox: namespaces, cgroups, network slots, storage pool. It takes a [`SandboxSpec`] and gives a
//! [`Handle`]; it knows nothing of HTTP, teams or rows.
#![deny(unsafe_code)]

mod error;
mod spec;

pub use error::{Error, Result};
pub use spec::{ExitReason, Limits, NetworkPolicy, Record, SandboxSpec, Usage};
