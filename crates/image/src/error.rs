//! What can go wrong while a template is prepared.

use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure, named for what was being done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("failed to {action} `{path}`")]
    Path {
        /// What was tried, e.g. `create`.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A program the build needs could not be started.
    #[error("failed to run `{program}`: is it installed?")]
    Tool {
        /// Its name.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// A program or step ended with an error.
    #[error("building layer `{layer}` failed: {what} {status}\n{output}")]
    Failed {
        /// The layer that was being built.
        layer: String,
        /// The program or step.
        what: String,
        /// How it ended, e.g. `exit status: 1`.
        status: String,
        /// The last lines it wrote.
        output: String,
    },
    /// The file system of the layers has too little room.
    #[error("the templates need {needed_mib} MiB in `{path}`, which has {free_mib} MiB left")]
    NoRoom {
        /// What making the missing layers takes, MiB.
        needed_mib: u64,
        /// What there is, MiB.
        free_mib: u64,
        /// Where layers are kept.
        path: PathBuf,
    },
    /// The layer directory was being written by somebody else for too long.
    #[error("`{path}` is in use by another build")]
    Busy {
        /// The lock file.
        path: PathBuf,
    },
}

impl Error {
    /// For `map_err` on a file operation.
    pub(crate) fn path(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Path { action, path: path.to_owned(), source }
    }
}
