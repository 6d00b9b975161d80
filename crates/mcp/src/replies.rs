//! The messages that answer one request, for readers that may lose their connection and come back for the rest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, watch};

/// Messages that are kept for a reader. Beyond it the oldest reports of progress are dropped; the answer is the last message.
const MAX_KEPT: usize = 64;

/// The messages of a request, in order. They stay until a reader has passed them.
#[derive(Debug)]
pub(crate) struct Replies {
    number: u64,
    state: Mutex<State>,
    /// Number of readers, and of changes, so that both can be waited for.
    readers: watch::Sender<usize>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Position of the first message that is kept.
    first: u64,
    kept: VecDeque<Value>,
    is_complete: bool,
    /// Whether a reader has seen the end.
    is_read: bool,
    /// Memory that they take.
    held: Option<OwnedSemaphorePermit>,
}

/// A message with its place among the messages of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Name of the place, by which a client asks for what comes after it.
    pub id: String,
    /// The message.
    pub message: Value,
}

/// A reader of the messages of a request.
#[derive(Debug)]
pub struct Reader {
    replies: Arc<Replies>,
    changes: watch::Receiver<u64>,
    next: u64,
}

/// Completes the messages when dropped.
pub(crate) struct Completion(pub(crate) Arc<Replies>);

impl Replies {
    pub(crate) fn new(number: u64) -> Self {
        Self {
            number,
            state: Mutex::default(),
            readers: watch::Sender::new(0),
            changes: watch::Sender::new(0),
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn push(&self, message: Value) {
        let mut state = self.lock();
        state.kept.push_back(message);
        if state.kept.len() > MAX_KEPT {
            state.kept.pop_front();
            state.first += 1;
        }
        drop(state);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Takes over what the messages hold, for as long as they stay.
    pub(crate) fn hold(&self, held: OwnedSemaphorePermit) {
        self.lock().held = Some(held);
    }

    /// Notes that no message follows.
    pub(crate) fn complete(&self) {
        self.lock().is_complete = true;
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Whether no reader has seen the end yet.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.lock().is_read
    }

    pub(crate) fn has_readers(&self) -> bool {
        *self.readers.borrow() > 0
    }

    /// A reader of the messages from position `next` on.
    pub(crate) fn read(self: &Arc<Self>, next: u64) -> Reader {
        self.readers.send_modify(|readers| *readers += 1);
        Reader { replies: self.clone(), changes: self.changes.subscribe(), next }
    }

    /// Waits until there was no reader for as long as `timeout`.
    pub(crate) async fn abandoned(&self, timeout: Duration) {
        let mut readers = self.readers.subscribe();
        loop {
            // The sender is in `self`.
            let _ = readers.wait_for(|readers| *readers == 0).await;
            if tokio::time::timeout(timeout, readers.wait_for(|readers| *readers > 0)).await.is_err() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader {
    /// The next message; `None` after the last. Safe to cancel.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            self.changes.mark_unchanged();
            {
                let mut state = self.replies.lock();
                self.next = self.next.max(state.first);
                let index = usize::try_from(self.next - state.first).unwrap_or(usize::MAX);
                if let Some(message) = state.kept.get(index).cloned() {
                    self.next += 1;
                    return Some(Event { id: format!("{}-{}", self.replies.number, self.next), message });
                }
                if state.is_complete {
                    state.is_read = true;
                    return None;
                }
            }
            // The sender is in `self.replies`.
            let _ = self.changes.changed().await;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.replies.readers.send_modify(|readers| *readers -= 1);
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.0.complete();
    }
}

/// The number of a request and the position among its messages that the id of an event names.
pub(crate) fn position(event: &str) -> Option<(u64, u64)> {
    let (number, position) = event.split_once('-')?;
    Some((number.parse().ok()?, position.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_reader_that_comes_back_gets_the_rest() {
        let replies = Arc::new(Replies::new(7));
        let mut reader = replies.read(0);
        replies.push(json!("a"));
        let first = reader.next().await.unwrap();
        assert_eq!((first.id.as_str(), &first.message), ("7-1", &json!("a")));
        drop(reader);
        replies.push(json!("b"));
        replies.complete();
        let (number, next) = position(&first.id).unwrap();
        assert_eq!(number, 7);
        let mut reader = replies.read(next);
        assert_eq!(reader.next().await.unwrap().message, json!("b"));
        assert!(replies.is_wanted());
        assert_eq!(reader.next().await, None);
        assert!(!replies.is_wanted());
    }

    #[tokio::test]
    async fn the_answer_is_kept_however_much_was_reported() {
        let replies = Arc::new(Replies::new(1));
        for step in 0..1000 {
            replies.push(json!(step));
        }
        replies.complete();
        let mut reader = replies.read(0);
        let mut got = Vec::new();
        while let Some(event) = reader.next().await {
            got.push(event);
        }
        assert_eq!(got.len(), MAX_KEPT);
        assert_eq!(got.last().unwrap(), &Event { id: "1-1000".into(), message: json!(999) });
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_readers_is_abandoned_after_a_while() {
        let replies = Arc::new(Replies::new(1));
        let timeout = Duration::from_secs(60);
        let reader = replies.read(0);
        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, replies.abandoned(timeout)).await.is_err(), "it is being read");
        drop(reader);
        let back = async {
            tokio::time::sleep(timeout / 2).await;
            replies.read(0)
        };
        let reader = tokio::select! {
            reader = back => reader,
            () = replies.abandoned(timeout) => panic!("too early"),
        };
        drop(reader);
        replies.abandoned(timeout).await;
    }

    #[test]
    fn ids_of_events_are_read_as_they_were_made() {
        assert_eq!(position("3-14"), Some((3, 14)));
        for wrong in ["", "3", "3-", "-1", "a-1", "1-2-3", "99999999999999999999-1"] {
            assert_eq!(position(wrong), None, "{wrong}");
        }
    }
}
