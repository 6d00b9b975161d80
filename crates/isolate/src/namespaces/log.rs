//! The end of an agent's log, for the error that says why it is not ready.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// The last lines; empty when there are none.
pub(super) fn tail(log: &Path) -> String {
    const MOST: u64 = 2048;
    let mut text = Vec::new();
    if let Ok(mut file) = File::open(log) {
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(MOST)));
        let _ = file.take(MOST).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).trim().to_owned()
}
