//! Events as lines of JSON.

use std::convert::Infallible;

use axum::body::Bytes;
use futures_util::Stream;
use sandcove_wire::interpreter::Event;
use tokio::sync::mpsc;

/// One line per event. Dropping the stream, as happens when the client hangs up, drops `events`.
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
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    Ok(line.into())
}
