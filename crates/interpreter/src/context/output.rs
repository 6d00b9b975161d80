//! Joins output into events (contract: interpreter, section 3, output batching). Pure: time comes in as a value.

use std::time::Duration;

use jiff::Timestamp;
use sandcove_wire::interpreter::{Event, Output};
use tokio::time::Instant;

use crate::kernel::frame::Stream;

/// Time after a first write in which further output goes into the same event.
const BATCH_INTERVAL: Duration = Duration::from_millis(200);
/// Size of an event that is sent early, in bytes.
const LARGE_BATCH: usize = 1 << 20;
/// Delay of an event that is sent early, in which the line end arrives that `print` writes after its text.
const LARGE_BATCH_DELAY: Duration = Duration::from_millis(10);

/// Text that was written and is not in an event yet.
#[derive(Debug, Default)]
pub struct OutputBuffer {
    stdout: Option<Pending>,
    stderr: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    text: String,
    due: Instant,
}

impl OutputBuffer {
    /// Adds text.
    pub fn push(&mut self, stream: Stream, text: String, now: Instant) {
        if text.is_empty() {
            return;
        }
        let pending =
            self.of(stream).get_or_insert_with(|| Pending { text: String::new(), due: now + BATCH_INTERVAL });
        pending.text.push_str(&text);
        if pending.text.len() >= LARGE_BATCH {
            pending.due = pending.due.min(now + LARGE_BATCH_DELAY);
        }
    }

    /// The event of one stream, if it has text.
    pub fn take(&mut self, stream: Stream) -> Option<Event> {
        let text = self.of(stream).take()?.text;
        let output = Output { text, timestamp: timestamp(Timestamp::now()) };
        Some(match stream {
            Stream::Stdout => Event::Stdout(output),
            Stream::Stderr => Event::Stderr(output),
        })
    }

    /// The events of both streams.
    pub fn take_all(&mut self) -> impl Iterator<Item = Event> + use<> {
        let earlier = [self.take(Stream::Stdout), self.take(Stream::Stderr)];
        earlier.into_iter().flatten()
    }

    /// When [`OutputBuffer::take_due`] will next have an event.
    pub fn due(&self) -> Option<Instant> {
        [&self.stdout, &self.stderr].into_iter().flatten().map(|pending| pending.due).min()
    }

    /// The events that are due.
    pub fn take_due(&mut self, now: Instant) -> impl Iterator<Item = Event> + use<> {
        let ready = [Stream::Stdout, Stream::Stderr].map(|stream| {
            let due = self.of(stream).as_ref().is_some_and(|pending| pending.due <= now);
            if due { self.take(stream) } else { None }
        });
        ready.into_iter().flatten()
    }

    fn of(&mut self, stream: Stream) -> &mut Option<Pending> {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

/// Formats a time as Python does: ISO 8601 with microseconds and a numeric offset.
fn timestamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(events: impl Iterator<Item = Event>) -> Vec<String> {
        events
            .map(|event| match event {
                Event::Stdout(output) => format!("out {}", output.text),
                Event::Stderr(output) => format!("err {}", output.text),
                other => panic!("unexpected {other:?}"),
            })
            .collect()
    }

    #[test]
    fn writes_within_the_interval_are_one_event() {
        let (mut buffer, start) = (OutputBuffer::default(), Instant::now());
        buffer.push(Stream::Stdout, "0\n".into(), start);
        buffer.push(Stream::Stderr, "e".into(), start + BATCH_INTERVAL / 4);
        buffer.push(Stream::Stdout, "1\n".into(), start + BATCH_INTERVAL / 2);
        assert_eq!(buffer.due(), Some(start + BATCH_INTERVAL));
        assert_eq!(texts(buffer.take_due(start + BATCH_INTERVAL)), ["out 0\n1\n"]);
        assert_eq!(texts(buffer.take_all()), ["err e"]);
        assert_eq!(buffer.due(), None);
    }

    #[test]
    fn nothing_written_is_no_event() {
        let mut buffer = OutputBuffer::default();
        buffer.push(Stream::Stdout, String::new(), Instant::now());
        assert!(buffer.take(Stream::Stdout).is_none());
    }

    #[test]
    fn much_text_is_sent_early() {
        let (mut buffer, start) = (OutputBuffer::default(), Instant::now());
        buffer.push(Stream::Stdout, "x".repeat(LARGE_BATCH), start);
        buffer.push(Stream::Stdout, "\n".into(), start);
        assert_eq!(buffer.due(), Some(start + LARGE_BATCH_DELAY));
        assert_eq!(texts(buffer.take_all()).len(), 1);
    }

    #[test]
    fn timestamps_look_like_those_of_python() {
        let time: Timestamp = "2026-01-02T03:04:05.678901234Z".parse().unwrap();
        assert_eq!(timestamp(time), "2026-01-02T03:04:05.678901+00:00");
        let whole: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(timestamp(whole), "2026-01-02T03:04:05.000000+00:00");
    }
}
