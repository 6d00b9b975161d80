//! What graders are: the context they decide in, and how their verdicts become one.

pub mod aggregate;
mod context;

pub use context::{Grader, GradingContext, RowId};
