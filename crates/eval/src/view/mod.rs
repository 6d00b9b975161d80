//! Stored runs for a viewer: lists, pages of tables, ratings, comparisons and exports.
//!
//! The tables are those of [`crate::store`]. A run may have more rows than fit in memory, so nothing here holds all of one: pages are
//! read by their place, and what depends on the content of rows looks at one after the other.

mod compare;
mod document;
mod export;
mod filter;
mod lists;
mod manage;
mod page;
mod rate;
mod red_team;
mod scan;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::{Row as _, SqliteConnection};

use crate::store::{self, StoreError};
pub use export::{Export, Piece};
pub use filter::{Filter, Mode, Query, Search};
pub use lists::{Listed, RunSummary};
pub use page::PageRequest;
use scan::Found;

/// Reason why a request for stored runs failed.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// No run has this id.
    #[error("no run `{0}` is stored")]
    NoRun(String),
    /// The run has no such row.
    #[error("`{run}` has no row `{row}`")]
    NoRow {
        /// The run.
        run: String,
        /// The row, as it was asked for.
        row: String,
    },
    /// The run attacked nothing.
    #[error("`{0}` is not a red-team run")]
    NoRedTeam(String),
    /// The request is malformed.
    #[error("{0}")]
    Invalid(String),
    /// The database cannot be opened.
    #[error(transparent)]
    Unavailable(#[from] StoreError),
    /// A stored row is not JSON of a row.
    #[error("the row `{row}` of `{run}` is damaged: {error}")]
    DamagedRow {
        /// The run.
        run: String,
        /// The row, as it was asked for.
        row: String,
        /// The failure of parsing it.
        error: serde_json::Error,
    },
    /// The task that reads the run panicked.
    #[error("the run could not be read")]
    Stopped,
    /// The database cannot be read or written.
    #[error("failed to read or write the results: {0}")]
    Database(#[from] sqlx::Error),
}

/// Recent results with their query: the next page has the same query.
type Recent = VecDeque<(String, Arc<Found>)>;

/// The most recent results that are kept.
const MAX_RECENT: usize = 8;

/// The runs of a directory.
#[derive(Debug)]
pub struct Library {
    directory: PathBuf,
    changes: AtomicU64,
    recent: Mutex<Recent>,
    tests: Mutex<lists::TestsOf>,
}

impl Library {
    /// The runs in `directory`, which may be missing yet.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, changes: AtomicU64::new(0), recent: Mutex::default(), tests: Mutex::default() }
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    async fn open(&self) -> Result<SqliteConnection, ViewError> {
        Ok(store::open_in(&self.directory).await?)
    }

    /// Drops cached results, because rows have changed.
    pub fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.tests.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn remembered(&self, question: &str) -> Option<Arc<Found>> {
        let answers = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        answers.iter().find(|(asked, _)| asked == question).map(|(_, found)| Arc::clone(found))
    }

    /// Keeps a result, unless rows have changed since `as_of`.
    fn remember(&self, question: String, found: &Arc<Found>, as_of: u64) {
        let mut answers = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if self.changes.load(Ordering::Relaxed) == as_of {
            answers.truncate(MAX_RECENT - 1);
            answers.push_front((question, Arc::clone(found)));
        }
    }

    /// Watches the database; [`Watch::changed`] reports commits of any process.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn watch(&self) -> Result<Watch, ViewError> {
        let mut watch = Watch { connection: self.open().await?, version: 0 };
        watch.changed().await?;
        Ok(watch)
    }
}

/// Sees when the database changes.
#[derive(Debug)]
pub struct Watch {
    connection: SqliteConnection,
    version: i64,
}

impl Watch {
    /// Whether anything was committed since the last call.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn changed(&mut self) -> Result<bool, ViewError> {
        let row = sqlx::query("PRAGMA data_version").fetch_one(&mut self.connection).await?;
        let version = row.get(0);
        Ok(std::mem::replace(&mut self.version, version) != version)
    }
}
