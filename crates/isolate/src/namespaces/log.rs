//! The end of an agent's log, for the error of an agent that did not become ready.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Reads the last 2 KiB of a log; empty when there is none.
pub(super) fn tail(log: &Path) -> String {
    const MAX_BYTES: u64 = 2048;
    let mut text = Vec::new();
    if let Ok(mut file) = File::open(log) {
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(MAX_BYTES)));
        let _ = file.take(MAX_BYTES).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).trim().to_owned()
}
