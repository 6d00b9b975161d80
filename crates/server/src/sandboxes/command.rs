//! Commands on their way to a driver, and the answers to them.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use crate::domain::lifecycle::Command;
use crate::{Error, Result};

/// The outcome of a command that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The command was carried out.
    Done,
    /// The sandbox was paused and runs again.
    Resumed,
    /// The sandbox ran all along.
    WasRunning,
    /// A snapshot was taken, with so many bytes of memory if it has any.
    SnapshotTaken(Option<u64>),
}

impl Outcome {
    /// Size of the memory of a snapshot that was taken, bytes.
    pub(crate) fn memory_bytes(self) -> Option<u64> {
        match self {
            Self::SnapshotTaken(bytes) => bytes,
            Self::Done | Self::Resumed | Self::WasRunning => None,
        }
    }
}

/// The channel for the answer to a command.
pub(super) type Reply = oneshot::Sender<Result<Outcome>>;

/// A command in the mailbox of a driver.
#[derive(Debug)]
pub(super) struct QueuedCommand {
    pub(super) command: Command,
    pub(super) reply: Reply,
    /// Time at which its client has decided to ask, at the latest.
    pub(super) asked_at: Instant,
    /// Parent of the span of a transition that the command begins.
    pub(super) span: tracing::Span,
}

/// Answers a command; a caller that hung up has no use for the answer.
pub(super) fn answer(reply: Reply, result: Result<Outcome>) {
    let _ = reply.send(result);
}

/// Answers commands that share an outcome.
pub(super) fn answer_all(replies: Vec<Reply>, result: Result<Outcome>) {
    match result {
        Ok(outcome) => replies.into_iter().for_each(|reply| answer(reply, Ok(outcome))),
        Err(error) if replies.is_empty() => {
            tracing::error!(error = ?error, "sandbox could not change its phase");
        }
        Err(error) => {
            // Errors cannot be copied.
            let error = Arc::new(error);
            replies.into_iter().for_each(|reply| answer(reply, Err(Error::Shared(error.clone()))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_waited_for_a_transition_get_its_error() {
        let (replies, answers): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel()).unzip();
        answer_all(replies, Err(Error::TooManySandboxes(7)));
        for mut answer in answers {
            let error = answer.try_recv().unwrap().unwrap_err();
            assert!(matches!(error.unshared(), Error::TooManySandboxes(7)), "{error}");
        }
    }
}
