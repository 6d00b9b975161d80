//! Reading the audit log.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sandcove_wire::api::audit::AuditRecord;

/// Extension of the files.
const EXTENSION: &str = "jsonl";

/// Number that stands for the file with records that were kept when others of their file were deleted: before all others.
pub(super) const KEPT: u64 = 0;
/// Name of that file. It is not one that log shippers follow: they have seen its records.
const KEPT_NAME: &str = "kept";

/// Filter for records.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// Maximum number.
    pub(crate) limit: usize,
    /// Records below this number only, newest first.
    pub(crate) before: Option<u64>,
    /// Records above this number only, oldest first.
    pub(crate) after: Option<u64>,
    /// Id of the team that acted.
    pub(crate) team: Option<String>,
    /// Id of the key.
    pub(crate) key: Option<String>,
    /// The action, or its beginning.
    pub(crate) action: Option<String>,
    /// Id of what was changed.
    pub(crate) object: Option<String>,
    /// Earliest time.
    pub(crate) since: Option<Timestamp>,
}

/// Records, and the number to go on with.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) records: Vec<AuditRecord>,
    /// Number of the last record of this page, if there are more.
    pub(crate) next: Option<u64>,
}

impl Wanted {
    fn matches(&self, record: &AuditRecord) -> bool {
        let is = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        is(&self.team, &record.team_id)
            && is(&self.key, &record.key_id)
            && is(&self.object, &record.object)
            && self.action.as_ref().is_none_or(|action| record.action.starts_with(action))
            && self.since.is_none_or(|since| record.time >= since)
            && self.before.is_none_or(|before| record.id < before)
            && self.after.is_none_or(|after| record.id > after)
    }
}

/// The path of the file that begins with a record.
pub(super) fn path(directory: &Path, first: u64) -> PathBuf {
    match first {
        KEPT => directory.join(KEPT_NAME),
        first => directory.join(format!("{first:020}.{EXTENSION}")),
    }
}

/// The files with the numbers of their first records, oldest first.
pub(super) fn files(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.ends_with(KEPT_NAME) {
            files.push((KEPT, path));
            continue;
        }
        let is_ours = path.extension().is_some_and(|extension| extension == EXTENSION);
        let number = path.file_stem().and_then(|name| name.to_str()?.parse().ok());
        files.extend(number.filter(|_| is_ours).map(|number| (number, path)));
    }
    files.sort();
    Ok(files)
}

/// The records of a file, oldest first. What is no record is passed over.
pub(super) fn records(path: &Path) -> io::Result<Vec<AuditRecord>> {
    let bytes = match std::fs::read(path) {
        // The oldest file may go at any time.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    Ok(bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

pub(super) fn page(directory: &Path, wanted: &Wanted) -> io::Result<Page> {
    let mut files = files(directory)?;
    if let Some(after) = wanted.after {
        // Files whose successor begins no later than the first wanted record have none.
        let begins = files.iter().rposition(|(first, _)| *first <= after.saturating_add(1)).unwrap_or(0);
        files.drain(..begins);
    } else {
        files.retain(|(first, _)| wanted.before.is_none_or(|before| *first < before));
        files.reverse();
    }
    let mut found = Vec::new();
    for (_, path) in files {
        let mut records = records(&path)?;
        if wanted.after.is_none() {
            records.reverse();
        }
        found.extend(records.into_iter().filter(|record| wanted.matches(record)));
        if found.len() > wanted.limit {
            break;
        }
    }
    let more = found.len() > wanted.limit;
    found.truncate(wanted.limit);
    let next = found.last().filter(|_| more).map(|record| record.id);
    Ok(Page { records: found, next })
}
