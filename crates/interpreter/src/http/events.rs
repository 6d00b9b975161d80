//! Events as lines of JSON.

use std::convert::Infallible;
use std::io;

use axum::body::Bytes;
use futures_util::Stream;
use sandcove_wire::interpreter::Event;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use tokio::sync::mpsc;

/// Turns each event into a line. Dropping the stream, as happens when the client hangs up, drops `events`.
pub(super) fn lines(events: mpsc::Receiver<Event>) -> impl Stream<Item = Result<Bytes, Infallible>> {
    futures_util::stream::unfold(events, |mut events| async {
        loop {
            let event = events.recv().await?;
            match line(&event) {
                Ok(line) => return Some((Ok(line), events)),
                Err(error) => tracing::error!(%error, "failed to encode an event"),
            }
        }
    })
}

fn line(event: &Event) -> serde_json::Result<Bytes> {
    let mut line = Vec::new();
    event.serialize(&mut Serializer::with_formatter(&mut line, OneLine))?;
    line.push(b'\n');
    Ok(line.into())
}

/// Formats compact JSON, and escapes the characters that Python clients take for line ends though JSON does not.
struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        if !fragment.is_ascii() {
            while let Some((at, end)) =
                rest.char_indices().find(|(_, c)| matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}'))
            {
                writer.write_all(&rest.as_bytes()[..at])?;
                write!(writer, "\\u{:04x}", u32::from(end))?;
                rest = &rest[at + end.len_utf8()..];
            }
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use sandcove_wire::interpreter::{ExecutionError, Output};

    use super::*;

    #[test]
    fn text_never_ends_a_line() {
        let text = "é\u{85}a\u{2028}\u{2029}\r\n\u{b}\u{c}\u{1c}日本".to_owned();
        let event = Event::Stdout(Output { text: text.clone(), timestamp: String::new() });
        let line = line(&event).unwrap();
        let line = std::str::from_utf8(&line).unwrap().strip_suffix('\n').unwrap();
        assert!(!line.contains(|c: char| c.is_control() || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}')));
        assert!(line.contains(r"é\u0085a\u2028\u2029\r\n"), "{line}");
        assert_eq!(serde_json::from_str::<Event>(line).unwrap(), event);
    }

    #[test]
    fn values_without_such_characters_stay_as_they_are() {
        let error = ExecutionError { name: "é".into(), value: "\"".into(), traceback: String::new() };
        let line = line(&Event::Error(error)).unwrap();
        assert_eq!(
            line,
            "{\"type\":\"error\",\"name\":\"é\",\"value\":\"\\\"\",\"traceback\":\"\"}\n".as_bytes()
        );
    }
}
