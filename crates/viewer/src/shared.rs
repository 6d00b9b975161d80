//! The state that all requests share.

use std::ffi::OsString;
use std::path::PathBuf;

use sandcove_eval::view::Library;
use tokio::sync::watch;

use crate::running::Runs;

/// The state that all requests share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The stored runs.
    pub(crate) library: Library,
    /// The number of changes, which pages are notified of.
    pub(crate) changes: watch::Sender<u64>,
    /// The program that the pages may run, and its output.
    pub(crate) runs: Option<Runs>,
    /// The directory that red teams are set up in, where the pages for it are served.
    pub(crate) setup: Option<PathBuf>,
}

impl Shared {
    /// The runs in `directory`, and no changes. The pages may run `command`.
    pub(crate) fn new(directory: PathBuf, command: Option<Vec<OsString>>, setup: Option<PathBuf>) -> Self {
        let runs = command.map(|command| Runs::new(command, directory.clone()));
        Self { library: Library::new(directory), changes: watch::Sender::new(0), runs, setup }
    }
}
