//! Assertion types. Each is a [`Grader`] in a table; the [`registry`] is all tables together.

mod context;
pub mod registry;

pub use context::{Grader, GradingContext, RowId};
