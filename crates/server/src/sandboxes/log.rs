//! The log of a sandbox, kept here until it is stored.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sandcove_wire::api::observe::{LogEntry, LogLevel};

use crate::clock;

/// Entries that may wait to be stored; the oldest are dropped first.
const CAPACITY: usize = 1000;

/// The newest part of the log of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct SandboxLog {
    pending: Mutex<VecDeque<LogEntry>>,
}

impl SandboxLog {
    /// Adds an entry.
    pub(crate) fn write(&self, level: LogLevel, message: &str) {
        let entry = LogEntry {
            timestamp: clock::now(),
            level,
            message: message.to_owned(),
            fields: BTreeMap::from([("logger".to_owned(), "sandcove".to_owned())]),
        };
        let mut pending = self.lock();
        if pending.len() == CAPACITY {
            pending.pop_front();
        }
        pending.push_back(entry);
    }

    /// Entries that are not stored yet, oldest first.
    pub(crate) fn pending(&self) -> Vec<LogEntry> {
        self.lock().iter().cloned().collect()
    }

    /// Forgets the oldest `count` entries, which are stored now.
    pub(super) fn stored(&self, count: usize) {
        let mut pending = self.lock();
        let count = count.min(pending.len());
        pending.drain(..count);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<LogEntry>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
