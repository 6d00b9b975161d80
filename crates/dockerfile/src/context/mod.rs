//! The build context: which files a `COPY` or `ADD` takes from a directory, and how they lie in the archive of a file set.

mod entry;
mod select;

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::ignore::Ignore;

pub use entry::{Content, Entry};

/// A directory and the files of it that are left out.
#[derive(Debug)]
pub struct Context {
    root: PathBuf,
    ignore: Ignore,
}

/// Files that one step copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Source within the archive, which the step names.
    pub source: String,
    /// Files, directories and links, in order of their paths.
    pub entries: Vec<Entry>,
    /// Whether the destination must be a directory.
    pub into_directory: bool,
}

impl Context {
    /// A context on a directory.
    ///
    /// # Errors
    /// If it is no directory.
    pub fn new(root: &Path, ignore: Ignore) -> Result<Self> {
        let failed = |reason: String| {
            Error::new(format!("failed to open the build context `{}`: {reason}", root.display()))
        };
        let canonical = root.canonicalize().map_err(|error| failed(error.to_string()))?;
        if !canonical.is_dir() {
            return Err(failed("it is not a directory".to_owned()));
        }
        Ok(Self { root: canonical, ignore })
    }

    /// The directory, without links in its path.
    pub fn root(&self) -> &Path {
        &self.root
    }
}
