//! Suites: reading, checking and merging configuration files into one value that is ready to run.

pub mod assertions;
mod attack_files;
pub mod attacks;
pub mod csv;
mod dataset;
pub mod draft;
pub mod hooks;
mod merged;
mod options;
mod program;
pub mod prompts;
mod providers;
pub mod repeated;
pub mod scenarios;
mod standalone;
pub mod suite;
pub mod test_cases;
mod tracing;
mod xlsx;

pub use options::LoadOptions;
pub use prompts::Prompt;
pub use suite::{ConfigError, DerivedMetric, Suite, load};
