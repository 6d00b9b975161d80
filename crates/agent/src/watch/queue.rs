//! The queue of events that wait for a client.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sandcove_wire::envd::filesystem::{EventType, FilesystemEvent};
use tokio::sync::Notify;

use crate::rpc::{Error, Result};

/// Limit on waiting events; the watcher of a client that is further behind fails.
const MAX_WAITING: usize = 100_000;
/// Number of waiting events from which repeated changes of one file are merged.
const MERGE_FROM: usize = 1024;

/// The events of one watcher. A failed queue stays failed.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<FilesystemEvent>,
    error: Option<Error>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event.
    pub(super) fn push(&self, event: FilesystemEvent) {
        let mut waiting = self.lock();
        if waiting.events.len() >= MAX_WAITING {
            waiting.events = VecDeque::new();
            let text = format!("more than {MAX_WAITING} events were waiting, and had to be dropped");
            waiting.error.get_or_insert(Error::internal(text));
        } else if waiting.error.is_none() {
            let repeated = matches!(event.r#type(), EventType::Write | EventType::Chmod)
                && waiting.events.len() >= MERGE_FROM
                && waiting
                    .events
                    .back()
                    .is_some_and(|last| last.name == event.name && last.r#type == event.r#type);
            if repeated {
                // The newer event has the newer entry.
                waiting.events.pop_back();
            }
            waiting.events.push_back(event);
        }
        drop(waiting);
        self.changed.notify_one();
    }

    /// Ends the queue with `error`, after the waiting events.
    pub(super) fn fail(&self, error: Error) {
        self.lock().error.get_or_insert(error);
        self.changed.notify_one();
    }

    /// Takes all waiting events.
    pub(super) fn take(&self) -> Result<Vec<FilesystemEvent>> {
        let mut waiting = self.lock();
        match &waiting.error {
            Some(error) if waiting.events.is_empty() => Err(error.clone()),
            _ => Ok(std::mem::take(&mut waiting.events).into()),
        }
    }

    /// Waits until there are events. For one waiter at a time; dropping the future loses nothing.
    pub(super) async fn next(&self) -> Result<Vec<FilesystemEvent>> {
        loop {
            let events = self.take()?;
            if !events.is_empty() {
                return Ok(events);
            }
            self.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::Code;

    fn event(name: &str, kind: EventType) -> FilesystemEvent {
        FilesystemEvent { name: name.into(), r#type: kind.into(), entry: None }
    }

    #[test]
    fn few_events_are_never_merged() {
        let queue = Queue::default();
        queue.push(event("a", EventType::Write));
        queue.push(event("a", EventType::Write));
        assert_eq!(queue.take().unwrap().len(), 2);
        assert_eq!(queue.take().unwrap().len(), 0);
    }

    #[test]
    fn many_changes_of_one_file_become_one() {
        let queue = Queue::default();
        for _ in 0..MAX_WAITING * 2 {
            queue.push(event("a", EventType::Write));
        }
        assert_eq!(queue.take().unwrap().len(), MERGE_FROM);
    }

    #[test]
    fn a_client_that_is_too_far_behind_gets_an_error() {
        let queue = Queue::default();
        for number in 0..=MAX_WAITING {
            queue.push(event(&number.to_string(), EventType::Create));
        }
        assert_eq!(queue.take().unwrap_err().code, Code::Internal);
        queue.push(event("late", EventType::Create));
        assert!(queue.take().is_err());
    }

    #[tokio::test]
    async fn a_failure_comes_after_the_events_before_it() {
        let queue = Queue::default();
        queue.push(event("a", EventType::Create));
        queue.fail(Error::internal("broken"));
        assert_eq!(queue.next().await.unwrap().len(), 1);
        assert!(queue.next().await.is_err());
        assert!(queue.next().await.is_err());
    }
}
