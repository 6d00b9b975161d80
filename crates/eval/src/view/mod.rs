//! What is stored, for people who look at it: lists, pages of tables, ratings, comparisons, exports.
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
mod scan;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::{Row as _, SqliteConnection};

pub use export::{Export, Piece};
pub use filter::{Filter, Mode, Question, Search};
pub use lists::{Listed, RunSummary};
pub use page::Wanted;
use scan::Found;

/// What can go wrong while looking.
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
        /// Its row, as it was asked for.
        row: String,
    },
    /// What was asked makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The database cannot be opened.
    #[error("{0}")]
    Unavailable(String),
    /// The database cannot be read or written.
    #[error("failed to read or write the results: {0}")]
    Database(#[from] sqlx::Error),
}

/// What was found lately, with the question: the next page asks the same.
type Answers = VecDeque<(String, Arc<Found>)>;

/// How many answers are kept.
const ANSWERS: usize = 8;

/// The runs of a directory.
#[derive(Debug)]
pub struct Library {
    directory: PathBuf,
    changes: AtomicU64,
    answers: Mutex<Answers>,
    tests: Mutex<lists::TestsOf>,
}

impl Library {
    /// The runs in `directory`, which may be missing yet.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, changes: AtomicU64::new(0), answers: Mutex::default(), tests: Mutex::default() }
    }

    async fn open(&self) -> Result<SqliteConnection, ViewError> {
        crate::store::open_in(&self.directory).await.map_err(ViewError::Unavailable)
    }

    /// Forgets what it remembers: rows changed.
    pub fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.tests.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn remembered(&self, question: &str) -> Option<Arc<Found>> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.iter().find(|(asked, _)| asked == question).map(|(_, found)| Arc::clone(found))
    }

    /// Keeps an answer, unless rows changed since `as_of`.
    fn remember(&self, question: String, found: &Arc<Found>, as_of: u64) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if self.changes.load(Ordering::Relaxed) == as_of {
            answers.truncate(ANSWERS - 1);
            answers.push_front((question, Arc::clone(found)));
        }
    }

    /// Watches the database; [`Watch::changed`] tells of commits of any process.
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
