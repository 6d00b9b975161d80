//! Text of configurations: files, nodes with their location, environment variables, and the diagnostics about all of them.

pub mod diagnostic;
pub mod document;
pub mod env;
pub mod files;
mod json;
pub mod list;
pub mod node;
pub mod references;
pub mod schema;

pub use diagnostic::{Diagnostic, Findings, Position, Severity};
pub use env::Env;

use std::path::PathBuf;

/// Reason why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be opened or is not UTF-8.
    #[error("failed to read `{}`", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The failure of the system call.
        #[source]
        source: std::io::Error,
    },
    /// The file is neither YAML nor JSON; a finding says where.
    #[error("the file has errors")]
    Invalid,
}
