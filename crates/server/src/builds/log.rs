//! Logs of builds (contract: templates, section 8). The entries of a build that runs are in memory, and in a file with one entry
//! a line, which is what remains. Offsets of clients stay valid: entries are only added, also by a build that goes on after a
//! restart of the server.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

use crate::clock;
use crate::domain::build::{LogEntry, LogLevel};

/// Size of a log in its file, bytes, from which on output of commands is dropped.
const MAX_BYTES: usize = 8 << 20;
/// Maximum length of a message, bytes. Output without line breaks becomes several entries.
pub(super) const MAX_LINE: usize = 8 << 10;

/// The log of a build that runs.
pub(super) struct BuildLog {
    inner: Mutex<Inner>,
}

struct Inner {
    entries: Vec<LogEntry>,
    bytes: usize,
    is_cut: bool,
    file: Option<File>,
}

impl BuildLog {
    /// Opens the log of a build, with the entries that it has. Without the file, entries are kept in memory only.
    pub(super) fn open(directory: &Path, build: Uuid) -> Self {
        let path = path(directory, build);
        let opened = std::fs::create_dir_all(directory).and_then(|()| open(&path));
        let (file, bytes, entries) = match opened {
            Ok((file, bytes, entries)) => (Some(file), bytes, entries),
            Err(error) => {
                tracing::warn!(build_id = %build, %error, "failed to open the log of a build");
                (None, 0, Vec::new())
            }
        };
        Self { inner: Mutex::new(Inner { entries, bytes, is_cut: false, file }) }
    }

    /// Adds an entry. `step` is that of [`LogEntry::step`].
    pub(super) fn write(&self, level: LogLevel, step: Option<&str>, message: impl Into<String>) {
        let message = message.into();
        self.with(|inner| inner.add(level, step, message));
    }

    /// Adds an entry with output of a command, unless the log is too large.
    pub(super) fn output(&self, level: LogLevel, step: Option<&str>, message: String) {
        self.with(|inner| {
            if inner.bytes < MAX_BYTES {
                inner.add(level, step, message);
            } else if !std::mem::replace(&mut inner.is_cut, true) {
                let text =
                    format!("the log is larger than {} MiB: further output is not shown", MAX_BYTES >> 20);
                inner.add(LogLevel::Warn, step, text);
            }
        });
    }

    /// The entries of a page.
    pub(super) fn page(&self, offset: usize, limit: usize, level: Option<LogLevel>) -> Vec<LogEntry> {
        self.with(|inner| page(inner.entries.iter(), offset, limit, level))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inner {
    fn add(&mut self, level: LogLevel, step: Option<&str>, message: String) {
        let entry = LogEntry { timestamp: clock::now(), level, message, step: step.map(str::to_owned) };
        if let Ok(mut line) = serde_json::to_vec(&entry) {
            line.push(b'\n');
            self.bytes += line.len();
            if let Some(file) = &mut self.file {
                // A full disk does not fail a build.
                let _ = file.write_all(&line);
            }
        }
        self.entries.push(entry);
    }
}

/// The entries of a page of the log of a build that does not run.
pub(super) fn read(
    directory: &Path,
    build: Uuid,
    offset: usize,
    limit: usize,
    level: Option<LogLevel>,
) -> std::io::Result<Vec<LogEntry>> {
    let text = match std::fs::read(path(directory, build)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    Ok(page(parse(&text).iter(), offset, limit, level))
}

/// The builds that have a log.
pub(super) fn builds(directory: &Path) -> Vec<Uuid> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".jsonl")?.parse().ok())
        .collect()
}

/// Deletes the log of a build.
pub(super) fn delete(directory: &Path, build: Uuid) -> std::io::Result<()> {
    std::fs::remove_file(path(directory, build))
}

fn path(directory: &Path, build: Uuid) -> PathBuf {
    directory.join(format!("{build}.jsonl"))
}

fn open(path: &Path) -> std::io::Result<(File, usize, Vec<LogEntry>)> {
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    // A line that a crash cut off was not seen by any client.
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    text.truncate(end);
    file.set_len(end as u64)?;
    file.seek(SeekFrom::End(0))?;
    Ok((file, text.len(), parse(&text)))
}

fn parse(text: &[u8]) -> Vec<LogEntry> {
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// At most `limit` entries from the `offset`th of those that are of `level` or above.
fn page<'a>(
    entries: impl Iterator<Item = &'a LogEntry>,
    offset: usize,
    limit: usize,
    level: Option<LogLevel>,
) -> Vec<LogEntry> {
    let is_wanted = |entry: &&LogEntry| level.is_none_or(|level| entry.level >= level);
    entries.filter(is_wanted).skip(offset).take(limit).cloned().collect()
}

/// Output of a program, taken apart into lines.
#[derive(Default)]
pub(super) struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Adds output, and passes on the lines that are complete.
    pub(super) fn push(&mut self, bytes: &[u8], mut on_line: impl FnMut(String)) {
        for byte in bytes {
            if *byte == b'\n' {
                on_line(text(&self.rest));
                self.rest.clear();
                continue;
            }
            self.rest.push(*byte);
            if self.rest.len() >= MAX_LINE {
                on_line(text(&self.rest));
                self.rest.clear();
            }
        }
    }

    /// Passes on the last line, if the output does not end with a line break.
    pub(super) fn finish(self, on_line: impl FnOnce(String)) {
        if !self.rest.is_empty() {
            on_line(text(&self.rest));
        }
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(entries: &[LogEntry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.message.as_str()).collect()
    }

    #[test]
    fn pages_count_entries_of_the_level_from_the_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let log = BuildLog::open(directory.path(), Uuid::nil());
        for number in 0..5 {
            let level = if number % 2 == 0 { LogLevel::Info } else { LogLevel::Error };
            log.write(level, Some("1"), number.to_string());
        }
        assert_eq!(messages(&log.page(0, 2, None)), ["0", "1"]);
        assert_eq!(messages(&log.page(2, 100, None)), ["2", "3", "4"]);
        assert_eq!(messages(&log.page(1, 100, Some(LogLevel::Warn))), ["3"]);
        assert!(log.page(5, 100, None).is_empty());
        assert_eq!(log.page(1, 3, None), read(directory.path(), Uuid::nil(), 1, 3, None).unwrap());
    }

    #[test]
    fn a_build_that_goes_on_after_a_crash_keeps_its_entries() {
        let directory = tempfile::tempdir().unwrap();
        BuildLog::open(directory.path(), Uuid::nil()).write(LogLevel::Info, None, "one");
        let path = path(directory.path(), Uuid::nil());
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"timestamp\":\"20").unwrap();
        let log = BuildLog::open(directory.path(), Uuid::nil());
        log.write(LogLevel::Info, None, "two");
        assert_eq!(messages(&log.page(0, 100, None)), ["one", "two"]);
        assert_eq!(messages(&read(directory.path(), Uuid::nil(), 0, 100, None).unwrap()), ["one", "two"]);
        assert_eq!(builds(directory.path()), [Uuid::nil()]);
    }

    #[test]
    fn output_beyond_the_limit_is_dropped_once_with_a_word() {
        let directory = tempfile::tempdir().unwrap();
        let log = BuildLog::open(directory.path(), Uuid::nil());
        // Each byte takes six in the file.
        for _ in 0..MAX_BYTES / MAX_LINE {
            log.output(LogLevel::Info, None, "\0".repeat(MAX_LINE));
        }
        log.write(LogLevel::Error, None, "Build failed");
        let all = log.page(0, usize::MAX, None);
        let [.., cut, end] = &messages(&all)[..] else { panic!("{} entries", all.len()) };
        assert_eq!(
            (*cut, *end),
            ("the log is larger than 8 MiB: further output is not shown", "Build failed")
        );
        let size = std::fs::metadata(path(directory.path(), Uuid::nil())).unwrap().len();
        assert!((MAX_BYTES..MAX_BYTES + 7 * MAX_LINE).contains(&(size as usize)), "{size} bytes");
        // Also what a server before has written counts.
        let log = BuildLog::open(directory.path(), Uuid::nil());
        log.output(LogLevel::Info, None, "more".to_owned());
        assert_eq!(
            messages(&log.page(all.len(), 100, None)),
            ["the log is larger than 8 MiB: further output is not shown"]
        );
    }

    #[test]
    fn output_becomes_lines_however_it_is_cut() {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        for part in ["a", "b\nc\r\n", "\nd"] {
            lines.push(part.as_bytes(), |line| seen.push(line));
        }
        lines.finish(|line| seen.push(line));
        assert_eq!(seen, ["ab", "c", "", "d"]);
        let (mut lines, mut count) = (Lines::default(), 0);
        lines.push(&vec![b'x'; 2 * MAX_LINE + 1], |_| count += 1);
        lines.finish(|_| count += 1);
        assert_eq!(count, 3);
    }

    #[test]
    fn a_build_without_a_log_has_an_empty_one() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(directory.path(), Uuid::nil(), 0, 100, None).unwrap().is_empty());
    }
}
