//! The log: one line for each event, on standard error, where the host collects it. A subscriber of a few lines, because this
//! program runs in every sandbox and the usual subscribers are larger than the rest of it.
//!
//! Services write there too. In a sandbox the log is memory of the sandbox, so that a long one is cut.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{FileType, fstat, ftruncate};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Size from which the log is cut, bytes.
pub(super) const MAX_SIZE: i64 = 1 << 20;
/// Time between two looks at its size.
const CHECK_EVERY: Duration = Duration::from_secs(300);

/// Keeps the log on standard error short, until the task is dropped.
pub(super) async fn keep_short() {
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        if let Err(error) = cut(std::io::stderr()) {
            tracing::warn!(%error, "failed to cut the log");
        }
    }
}

/// Empties a file that has become long; anything but a file stays as it is.
pub(super) fn cut(log: impl AsFd) -> std::io::Result<()> {
    let found = fstat(&log)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_size > MAX_SIZE {
        ftruncate(&log, 0)?;
    }
    Ok(())
}

/// Writes events of `level` and more severe ones to standard error.
pub fn init(level: Level) {
    super::sys::keep_memory_small();
    // Fails only if there is a subscriber already, which then stays.
    let _ = tracing::subscriber::set_global_default(Log { level });
}

struct Log {
    level: Level,
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("sandcove")
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(self.level.into())
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // Spans are not shown, so they need no names of their own.
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} {}", jiff::Timestamp::now(), event.metadata().level()));
        event.record(&mut line);
        line.0.push('\n');
        // In one write, so that lines of services do not mix in.
        let _ = std::io::stderr().write_all(line.0.as_bytes());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_log_is_cut() {
        let log = tempfile::tempfile().unwrap();
        log.set_len(MAX_SIZE as u64).unwrap();
        cut(&log).unwrap();
        assert_eq!(log.metadata().unwrap().len(), MAX_SIZE as u64);
        log.set_len(MAX_SIZE as u64 + 1).unwrap();
        cut(&log).unwrap();
        assert_eq!(log.metadata().unwrap().len(), 0);
        let (reader, _writer) = std::io::pipe().unwrap();
        cut(&reader).unwrap();
    }
}
