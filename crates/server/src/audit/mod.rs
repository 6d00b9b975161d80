//! The audit log: who did what, in files that are appended to and bounded.
//!
//! A file holds records of JSON, one on a line, and is named by the number of its first record. A full file is left, and the oldest one deleted;
//! what teams other than the loudest did is kept.

mod read;
mod shrink;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sandcove_wire::api::audit::AuditRecord;

pub(crate) use read::{Page, Wanted};

/// Size at which a file is full, bytes.
const MAX_FILE: u64 = 16 << 20;
/// Maximum number of files.
const MAX_FILES: usize = 8;

/// The audit log of a server.
#[derive(Debug)]
pub(crate) struct Audit {
    directory: PathBuf,
    max_file: u64,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    size: u64,
    next: u64,
}

impl Audit {
    /// Opens the log in `directory`, which is created if needed.
    pub(crate) fn open(directory: PathBuf) -> io::Result<Self> {
        Self::with_files_of(directory, MAX_FILE)
    }

    fn with_files_of(directory: PathBuf, max_file: u64) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let last = read::files(&directory)?.pop().filter(|(first, _)| *first != read::KEPT);
        let next = match &last {
            Some((first, path)) => read::records(path)?.last().map_or(*first, |record| record.id + 1),
            None => 1,
        };
        let first = last.map_or(next, |(first, _)| first);
        let mut file = append_to(&directory, first)?;
        let mut size = file.metadata()?.len();
        if size > 0 && !std::fs::read(read::path(&directory, first))?.ends_with(b"\n") {
            // A line that a crash has cut off stays, and is not read.
            file.write_all(b"\n")?;
            size += 1;
        }
        Ok(Self { directory, max_file, open: Mutex::new(Open { file, size, next }) })
    }

    /// Appends a record, whose number is given here. It is in the file when this returns, and on the disk a little later.
    pub(crate) fn append(&self, mut record: AuditRecord) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.size >= self.max_file {
            open.file.sync_data()?;
            open.file = append_to(&self.directory, open.next)?;
            open.size = 0;
            shrink::to(&self.directory, MAX_FILES, self.max_file / 4)?;
        }
        record.id = open.next;
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        open.file.write_all(&line)?;
        open.next += 1;
        open.size += line.len() as u64;
        Ok(())
    }

    /// The records that are wanted.
    pub(crate) fn page(&self, wanted: &Wanted) -> io::Result<Page> {
        read::page(&self.directory, wanted)
    }
}

fn append_to(directory: &Path, first: u64) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(read::path(directory, first))
}

#[cfg(test)]
mod tests {
    use sandcove_wire::api::audit::{AuditCredential, AuditOutcome};

    use super::*;

    fn record(action: &str) -> AuditRecord {
        AuditRecord {
            id: 0,
            time: crate::clock::now(),
            action: action.to_owned(),
            object: Some("o".to_owned()),
            credential: AuditCredential::ApiKey,
            key_id: Some("k".to_owned()),
            team_id: Some("t".to_owned()),
            outcome: AuditOutcome::Done,
            status: Some(204),
            request_id: "r".to_owned(),
            remote: "192.0.2.1".to_owned(),
            forwarded_for: None,
            via: None,
        }
    }

    fn numbers(log: &Audit, wanted: &Wanted) -> Vec<u64> {
        log.page(wanted).unwrap().records.iter().map(|record| record.id).collect()
    }

    #[test]
    fn records_are_found_after_a_restart_and_a_crash() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit");
        let log = Audit::open(path.clone()).unwrap();
        for action in ["sandbox.kill", "api-key.create", "sandbox.pause"] {
            log.append(record(action)).unwrap();
        }
        // A crash in the middle of a line.
        append_to(&path, 1).unwrap().write_all(b"{\"id\":4,\"ti").unwrap();
        let log = Audit::open(path).unwrap();
        log.append(record("team.ban")).unwrap();
        let all = Wanted { limit: 10, ..Wanted::default() };
        assert_eq!(numbers(&log, &all), [4, 3, 2, 1]);
        let first = log.page(&Wanted { limit: 3, ..Wanted::default() }).unwrap();
        assert_eq!((first.records.len(), first.next), (3, Some(2)));
        assert_eq!(numbers(&log, &Wanted { before: Some(2), ..all.clone() }), [1]);
        assert_eq!(numbers(&log, &Wanted { after: Some(2), ..all.clone() }), [3, 4]);
        assert_eq!(numbers(&log, &Wanted { action: Some("sandbox.".to_owned()), ..all.clone() }), [3, 1]);
        assert_eq!(numbers(&log, &Wanted { team: Some("other".to_owned()), ..all }), [0; 0]);
    }

    #[test]
    fn a_team_pushes_out_its_own_records_first() {
        let directory = tempfile::tempdir().unwrap();
        let log = Audit::with_files_of(directory.path().to_owned(), 4000).unwrap();
        let by =
            |team: Option<&str>| AuditRecord { team_id: team.map(str::to_owned), ..record("secret.delete") };
        log.append(by(Some("quiet"))).unwrap();
        log.append(by(None)).unwrap();
        for number in 0..1000 {
            log.append(by(Some("loud"))).unwrap();
            if number == 500 {
                log.append(by(Some("quiet"))).unwrap();
            }
        }
        let all = Wanted { limit: 2000, ..Wanted::default() };
        assert_eq!(numbers(&log, &Wanted { team: Some("quiet".to_owned()), ..all.clone() }), [504, 1]);
        let kept = numbers(&log, &all);
        assert_eq!((kept[0], &kept[kept.len() - 2..]), (1003, &[2, 1][..]));
        assert!(kept.len() < 200 && kept.is_sorted_by(|one, next| one > next), "{kept:?}");
        assert_eq!(numbers(&log, &Wanted { after: Some(1), limit: 2, ..all.clone() })[0], 2);
        // Nor do many quiet teams, or what operators do, make it grow.
        for number in 0..3000 {
            log.append(by(Some(&number.to_string()))).unwrap();
            log.append(by(None)).unwrap();
        }
        let files = read::files(directory.path()).unwrap();
        let size: u64 = files.iter().map(|(_, path)| path.metadata().unwrap().len()).sum();
        assert!(files.len() == MAX_FILES + 1 && size < 4000 * 9 + 2000, "{size}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), MAX_FILES + 1);
        drop(log);
        let log = Audit::open(directory.path().to_owned()).unwrap();
        log.append(by(None)).unwrap();
        assert_eq!(numbers(&log, &Wanted { limit: 1, ..Wanted::default() }), [7004]);
    }

    #[test]
    fn the_log_is_bounded_and_keeps_what_is_newest() {
        let directory = tempfile::tempdir().unwrap();
        let log = Audit::with_files_of(directory.path().to_owned(), 1000).unwrap();
        for _ in 0..200 {
            log.append(record("sandbox.kill")).unwrap();
        }
        let files = read::files(directory.path()).unwrap();
        assert_eq!(files.len(), MAX_FILES);
        let kept = numbers(&log, &Wanted { limit: 1000, ..Wanted::default() });
        assert_eq!((kept[0], *kept.last().unwrap()), (200, files[0].0));
        let after = numbers(&log, &Wanted { after: Some(1), limit: 5, ..Wanted::default() });
        assert_eq!(after[0], files[0].0, "what is gone is passed over");
        assert_eq!(after.len(), 5);
        drop(log);
        let log = Audit::open(directory.path().to_owned()).unwrap();
        log.append(record("sandbox.kill")).unwrap();
        assert_eq!(numbers(&log, &Wanted { limit: 1, ..Wanted::default() }), [201]);
    }
}
