//! The bound of the log: which records go when a file is begun.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sandcove_wire::api::audit::AuditRecord;

use super::read;

/// Deletes the oldest files until there are `max_files`. What others than the loudest team did is kept in a file of its own, up to `max_kept`
/// bytes: a team that repeats calls pushes out its own records, and not those of others.
pub(super) fn to(directory: &Path, max_files: usize, max_kept: u64) -> io::Result<()> {
    let files: Vec<_> =
        read::files(directory)?.into_iter().filter(|(first, _)| *first != read::KEPT).collect();
    let excess = files.len().saturating_sub(max_files);
    for (_, oldest) in files.into_iter().take(excess) {
        let path = read::path(directory, read::KEPT);
        let mut records = read::records(&path)?;
        records.extend(read::records(&oldest)?);
        // A crash may have left what was moved.
        records.sort_by_key(|record| record.id);
        records.dedup_by_key(|record| record.id);
        let content = quiet(&records, max_kept)?;
        if content.is_empty() {
            remove(&path)?;
            remove(&oldest)?;
            continue;
        }
        let unfinished = directory.join("unfinished");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(&content)?;
        file.sync_data()?;
        std::fs::rename(unfinished, path)?;
        remove(&oldest)?;
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The newest records of others than the team with most of them, as lines. What operators do is no team's.
fn quiet(records: &[AuditRecord], max: u64) -> io::Result<Vec<u8>> {
    let mut lines = Vec::with_capacity(records.len());
    let mut sizes: HashMap<&str, usize> = HashMap::new();
    for record in records {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        if let Some(team) = &record.team_id {
            *sizes.entry(team).or_default() += line.len();
        }
        lines.push((record.team_id.as_deref(), line));
    }
    let loudest = sizes.into_iter().max_by_key(|(_, size)| *size).map(|(team, _)| team);
    let mut left = max;
    let mut kept = Vec::new();
    for (_, line) in lines.into_iter().rev().filter(|(team, _)| team.is_none() || *team != loudest) {
        let Some(rest) = left.checked_sub(line.len() as u64) else { break };
        left = rest;
        kept.push(line);
    }
    kept.reverse();
    Ok(kept.concat())
}
