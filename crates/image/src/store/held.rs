//! A lock that ends with its value. Closing the file would not be enough: a child that another thread forks has the file open
//! too until it runs its program, and keeps the lock that long.

use std::fs::{File, TryLockError};

/// A file that is locked until it is dropped.
#[derive(Debug)]
pub(super) struct Held(File);

impl Held {
    /// Locks `file` by `lock`.
    pub(super) fn take(
        file: File,
        lock: impl Fn(&File) -> std::result::Result<(), TryLockError>,
    ) -> std::result::Result<Self, TryLockError> {
        lock(&file).map(|()| Self(file))
    }

    /// The file that is locked.
    pub(super) fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // On failure, the end of the last process that has the file open ends the lock.
        let _ = self.0.unlock();
    }
}
