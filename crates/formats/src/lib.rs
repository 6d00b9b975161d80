//! What answers are held against that has a grammar of its own: SQL statements and JSON schemas.
//!
//! The libraries behind it are large and generic. Their code is compiled here, once and with little optimisation, and not in the crate
//! that asks: this crate shows no type of theirs.
#![forbid(unsafe_code)]

mod keywords;
mod schema;
pub mod sql;

pub use schema::{Schema, SchemaError};
