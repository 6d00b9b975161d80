//! Errors of template builds.

use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure, named for what was being done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("failed to {action} `{path}`")]
    Path {
        /// Action that failed, such as `create`.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// A program of the build could not be started.
    #[error("failed to run `{program}`: is it installed?")]
    Tool {
        /// Name of the program.
        program: String,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// A program or step ended with an error.
    #[error("building layer `{layer}` failed: {what} {status}\n{output}")]
    Failed {
        /// Id of the layer.
        layer: String,
        /// Program or step that failed.
        what: String,
        /// Exit status, such as `exit status: 1`.
        status: String,
        /// Last lines of its output.
        output: String,
    },
    /// The file system of the layers has too little space.
    #[error("the templates need {needed_mib} MiB in `{path}`, which has {free_mib} MiB left")]
    NoRoom {
        /// Space that building the missing layers takes, MiB.
        needed_mib: u64,
        /// Free space, MiB.
        free_mib: u64,
        /// Directory of the layers.
        path: PathBuf,
    },
    /// Another process is building in the layer directory.
    #[error("`{path}` is in use by another build")]
    Busy {
        /// Path of the lock file.
        path: PathBuf,
    },
}

impl Error {
    /// Wraps the error of a file operation, for `map_err`.
    pub(crate) fn path(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Path { action, path: path.to_owned(), source }
    }
}
