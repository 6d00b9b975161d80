//! Imports from a registry that the tests serve, and layers of all kinds.

mod archives;
mod auth;
mod entries;
mod errors;
mod hostile;
mod registry;
pub(super) mod support;
mod transfers;
