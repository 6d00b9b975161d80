//! The state that all requests share.

use std::path::PathBuf;

use sandcove_eval::view::Library;
use tokio::sync::watch;

use crate::running::Setup;

/// The state that all requests share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The stored runs.
    pub(crate) library: Library,
    /// The number of changes, which pages are notified of.
    pub(crate) changes: watch::Sender<u64>,
    /// Setting up red teams, where the pages for it are served.
    pub(crate) setup: Option<Setup>,
}

impl Shared {
    /// The runs in `directory`, and no changes.
    pub(crate) fn new(directory: PathBuf, setup: Option<Setup>) -> Self {
        Self { library: Library::new(directory), changes: watch::Sender::new(0), setup }
    }
}
