//! What happened to a sandbox, kept in memory while it lives; the log endpoints read it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use sandcove_wire::api::observe::{LogEntry, LogLevel};

use crate::clock;

/// Entries kept; the oldest go first.
const CAPACITY: usize = 1000;

/// The log of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: Mutex<VecDeque<LogEntry>>,
}

impl Journal {
    pub(crate) fn write(&self, level: LogLevel, message: &str) {
        let entry = LogEntry {
            timestamp: clock::now(),
            level,
            message: message.to_owned(),
            fields: BTreeMap::from([("logger".to_owned(), "sandcove".to_owned())]),
        };
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() == CAPACITY {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// All entries, oldest first.
    pub(crate) fn read(&self) -> Vec<LogEntry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
