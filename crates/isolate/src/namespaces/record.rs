//! `run/<id>/jail.json`: what a restarted server needs to find a sandbox again.

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

/// The records of all there are below `run`.
pub(super) fn all(run: &Path) -> Vec<Record> {
    let entries = std::fs::read_dir(run).into_iter().flatten();
    entries.filter_map(|entry| read(&entry.ok()?.path()).ok()).collect()
}

/// Replaces the record in one step. It is not synced: it describes processes, which do not survive a power cut either.
pub(super) fn write(run_dir: &Path, record: &Record) -> Result<()> {
    let (path, fresh) = (run_dir.join(NAME), run_dir.join("jail.json.new"));
    let written: io::Result<()> = (|| {
        let mut file = File::create(&fresh)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        std::fs::rename(&fresh, &path)
    })();
    written.map_err(|source| Error::Path { action: "write", path, source })
}
