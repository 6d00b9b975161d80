//! What a sandbox writes to its log while it shows that its start command gets ready (contract: templates, sections 8.1 and 9.4): the
//! output of the start command and the attempts of the ready command, which become entries of the log of the build as they come.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use sandcove_isolate::Error as IsolateError;
use sandcove_wire::boot::{
    READY_COMMAND_FAILED, READY_COMMAND_TIMEOUT, READY_OUTPUT, START_COMMAND_FAILED, START_OUTPUT,
};

use super::engine::{Engine, FINALIZE};
use super::failure::Failure;
use super::log::Lines;
use crate::domain::build::LogLevel;

/// Interval at which the sandbox log is read.
const INTERVAL: Duration = Duration::from_millis(200);
/// Bytes that are read at a time.
const CHUNK: usize = 64 << 10;
/// Bytes that are read at most in each interval: the sandbox may make its log as long as its memory.
const MAX_BYTES: u64 = 2 << 20;

impl Engine<'_> {
    /// Waits for a sandbox that `start` starts with a log, and writes what the log says of the start command to the log of the build.
    ///
    /// # Errors
    /// If the sandbox does not become ready.
    pub(super) async fn follow<T, F>(&self, start: impl FnOnce(File) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, IsolateError>>,
    {
        let log = self.shared.host.create_log().await?;
        let started = start(log.try_clone().map_err(Failure::internal)?);
        let mut reader = Reader { log, offset: 0, lines: Lines::default() };
        let mut note = |line: String| {
            if let Some(level) = level(&line) {
                self.job.log.output(level, Some(FINALIZE), line);
            }
        };
        tokio::pin!(started);
        let mut interval = tokio::time::interval(INTERVAL);
        let outcome = loop {
            tokio::select! {
                outcome = &mut started => break outcome,
                _ = interval.tick() => reader.read(&mut note),
            }
        };
        reader.read(&mut note);
        outcome.map_err(why)
    }
}

/// The level of a line of the sandbox log in the log of the build; `None` if the line is not for the build.
fn level(line: &str) -> Option<LogLevel> {
    if line.starts_with(START_OUTPUT) {
        Some(LogLevel::Info)
    } else if line.starts_with(READY_OUTPUT) {
        Some(LogLevel::Debug)
    } else {
        None
    }
}

/// Reads a sandbox log as it grows. The agent empties a log that has become long, and begins it anew.
struct Reader {
    log: File,
    offset: u64,
    lines: Lines,
}

impl Reader {
    fn read(&mut self, mut on_line: impl FnMut(String)) {
        let length = self.log.metadata().map_or(0, |metadata| metadata.len());
        if length < self.offset {
            // The end of the line that has begun is lost.
            (self.offset, self.lines) = (0, Lines::default());
        }
        let end = length.min(self.offset.saturating_add(MAX_BYTES));
        let mut chunk = vec![0; CHUNK];
        // By position: the descriptors inside the sandbox have the same one.
        while self.offset < end
            && let Ok(read @ 1..) = self.log.read_at(&mut chunk, self.offset)
        {
            self.offset += read as u64;
            self.lines.push(&chunk[..read], &mut on_line);
        }
    }
}

/// The failure of a sandbox that did not become ready.
fn why(error: IsolateError) -> Failure {
    let log = match &error {
        IsolateError::AgentEnded { log, .. } | IsolateError::AgentSlow { log, .. } => log,
        _ => return error.into(),
    };
    let reason = log.lines().rev().find_map(|line| {
        let at = [START_COMMAND_FAILED, READY_COMMAND_FAILED].iter().find_map(|start| line.find(start))?;
        Some(line[at..].to_owned())
    });
    match (reason, &error) {
        (Some(reason), _) => Failure::new(reason),
        (None, IsolateError::AgentSlow { .. }) => {
            let minutes = READY_COMMAND_TIMEOUT.as_secs() / 60;
            Failure::new(format!("{READY_COMMAND_FAILED}ready command timed out after {minutes}m0s"))
        }
        (None, _) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use sandcove_isolate::create_log;
    use uuid::Uuid;

    use super::*;

    fn message(error: IsolateError) -> String {
        why(error).reason(Uuid::nil()).message
    }

    #[test]
    fn a_boot_that_fails_is_explained_by_the_last_reason_in_the_log() {
        let log = "x\n2026 ERROR start command failed: exit status 3\nmore".to_owned();
        let ended = IsolateError::AgentEnded { waited_ms: 1, log };
        assert_eq!(message(ended), "start command failed: exit status 3");
        let slow = IsolateError::AgentSlow { waited_ms: 1, log: "x".to_owned() };
        assert_eq!(message(slow), "ready command failed: ready command timed out after 10m0s");
        let unknown = IsolateError::AgentEnded { waited_ms: 1, log: "x".to_owned() };
        assert!(message(unknown).contains("internal error"));
    }

    #[test]
    fn a_sandbox_log_is_read_as_it_grows_and_anew_after_it_was_emptied() {
        let mut log = create_log().unwrap();
        let mut reader = Reader { log: log.try_clone().unwrap(), offset: 0, lines: Lines::default() };
        let mut seen = Vec::new();
        write!(log, "[start] [stdout]: one\n[start] [std").unwrap();
        reader.read(|line| seen.push(line));
        writeln!(log, "err]: two").unwrap();
        reader.read(|line| seen.push(line));
        log.set_len(0).unwrap();
        writeln!(log, "[ready] three").unwrap();
        reader.read(|line| seen.push(line));
        assert_eq!(seen, ["[start] [stdout]: one", "[start] [stderr]: two", "[ready] three"]);
    }

    #[test]
    fn only_lines_about_the_start_and_ready_commands_are_for_the_build() {
        assert_eq!(level("[start] [stdout]: x"), Some(LogLevel::Info));
        assert_eq!(level("[ready] [stderr]: x"), Some(LogLevel::Debug));
        assert_eq!(level("2026-08-01T00:00:00Z INFO x [start] "), None);
    }
}
