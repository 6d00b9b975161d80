//! The record of a sandbox, `run/<id>/jail.json`: a restarted server adopts the sandbox by it.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::{Error, Record, Result};

const NAME: &str = "jail.json";

pub(super) fn read(run_dir: &Path) -> Result<Record> {
    let path = run_dir.join(NAME);
    let text =
        std::fs::read(&path).map_err(|source| Error::Path { action: "read", path: path.clone(), source })?;
    serde_json::from_slice(&text).map_err(|error| Error::Path { action: "parse", path, source: error.into() })
}

/// Reads all records below `run`; unreadable ones are left out.
pub(super) fn all(run: &Path) -> Vec<Record> {
    let entries = std::fs::read_dir(run).into_iter().flatten();
    entries.filter_map(|entry| read(&entry.ok()?.path()).ok()).collect()
}

/// Replaces the record atomically. The record is not synced: it describes processes, which do not survive a power failure.
pub(super) fn write(run_dir: &Path, record: &Record) -> Result<()> {
    let (path, fresh) = (run_dir.join(NAME), run_dir.join("jail.json.new"));
    let written: io::Result<()> = (|| {
        let mut file = File::create(&fresh)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        std::fs::rename(&fresh, &path)
    })();
    written.map_err(|source| Error::Path { action: "write", path, source })
}
