//! Reading configurations: files with the place of everything, checks that tell what has no effect, and merging.

pub mod assertions;
pub mod csv;
pub mod diagnostic;
pub mod document;
pub mod env;
pub mod files;
mod merged;
pub mod node;
pub mod prompts;
pub mod scenarios;
pub(crate) mod schema;
mod standalone;
pub mod suite;
pub mod tests;

pub use diagnostic::{ConfigError, Diagnostic, Findings, Severity};
pub use prompts::Prompt;
pub use suite::{DerivedMetric, LoadOptions, Suite, load};
