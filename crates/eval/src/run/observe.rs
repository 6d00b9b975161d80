//! Following a run from outside, and interrupting it.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::model::Evaluation;
use crate::store::recording::{Recorded, Storage};

use super::RunError;

/// Follows a run. Methods do nothing unless they are implemented.
pub trait Observer: Send + Sync {
    /// The run begins, with this many rows to do, and at most `concurrency` of them at a time.
    fn begun(&self, _rows: usize, _concurrency: usize, _id: &str) {}
    /// A row begins. `_about` names its column and its test.
    fn row_started(&self, _about: &dyn Fn() -> String) {}
    /// A row has finished. Rows finish in any order.
    fn row_finished(&self, _passed: bool) {}
    /// The run was interrupted, and waits for the rows in flight.
    fn pausing(&self, _in_flight: usize) {}
    /// All rows are done, or the run has paused.
    fn ended(&self) {}
    /// Something is not as the suite wants it, without harm to any row.
    fn warned(&self, _text: &str) {}
    /// A hook has printed text.
    fn hook_printed(&self, _text: &str) {}
}

impl Observer for () {}

/// The origin of a run.
#[derive(Debug, Clone)]
pub enum Start {
    /// The run is new. `invocation` is stored with it, to resume it.
    New {
        /// The database of its rows.
        storage: Storage,
        /// The options it was started with.
        invocation: Value,
    },
    /// The run was stored before, and is resumed.
    Again {
        /// The id of the run.
        id: String,
        /// Whether rows with errors are run again, beside those that are missing.
        errors: bool,
    },
}

/// How a run is started, followed and interrupted.
pub struct Control {
    /// The origin of the run.
    pub start: Start,
    /// At the first message no more rows begin; at the second those in flight are given up.
    pub interrupts: mpsc::Receiver<()>,
    /// Follows the run.
    pub observer: Arc<dyn Observer>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All rows are done.
    Finished,
    /// The run was interrupted, and so many rows are missing.
    Paused(usize),
    /// The run was interrupted in the middle of rows, or rows could not be stored.
    GivenUp,
}

/// A run that ended.
#[derive(Debug)]
pub struct Outcome {
    /// The run without its rows.
    pub evaluation: Evaluation,
    /// The rows.
    pub rows: Recorded,
    /// How the run ended.
    pub end: End,
    /// The result of the hooks after the run.
    pub after: Result<(), RunError>,
}
