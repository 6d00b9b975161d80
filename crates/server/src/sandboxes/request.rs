//! What is asked of a driver, and how it answers.

use std::time::{Duration, Instant};

use sandcove_wire::api::network::NetworkUpdate;
use tokio::sync::oneshot;

use super::lifecycle::{Ask, Keep};
use crate::events::KillReason;
use crate::{Error, Result};

/// What may be asked of a sandbox.
#[derive(Debug)]
pub(crate) enum Request {
    Pause(Keep),
    Resume {
        from: Keep,
        timeout: Duration,
        /// Whether it is paused when that time is up; as before when none.
        auto_pause: Option<bool>,
    },
    Connect {
        from: Keep,
        timeout: Duration,
    },
    Wake,
    Kill(KillReason),
    SetTimeout(Duration),
    Refresh(Duration),
    SetNetwork(Box<NetworkUpdate>),
    /// Keep the files under this name.
    Snapshot(String),
    /// The same, for forks.
    Fork(String),
}

/// How it was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As asked.
    Done,
    /// It was paused and runs again.
    Resumed,
    /// It ran all along.
    WasRunning,
}

pub(super) type Reply = oneshot::Sender<Result<Outcome>>;

#[derive(Debug)]
pub(super) struct Command {
    pub(super) request: Request,
    pub(super) reply: Reply,
    /// When.
    pub(super) asked: Instant,
    /// What the change it begins is part of.
    pub(super) span: tracing::Span,
}

impl Request {
    /// Its kind.
    pub(super) fn ask(&self) -> Ask {
        match self {
            Self::Pause(keep) => Ask::Pause(*keep),
            Self::Resume { from, .. } => Ask::Resume(*from),
            Self::Connect { from, .. } => Ask::Connect(*from),
            Self::Wake => Ask::Wake,
            Self::Kill(_) => Ask::Kill,
            Self::SetTimeout(_) => Ask::SetTimeout,
            Self::Refresh(_) => Ask::Refresh,
            Self::SetNetwork(_) => Ask::SetNetwork,
            Self::Snapshot(_) => Ask::Snapshot,
            Self::Fork(_) => Ask::Fork,
        }
    }
}

/// A caller that hung up has no use for the answer.
pub(super) fn answer(reply: Reply, result: Result<Outcome>) {
    let _ = reply.send(result);
}

/// Errors are not copied: the first caller gets the whole one, the others its text.
pub(super) fn answer_all(replies: Vec<Reply>, result: Result<Outcome>) {
    let mut replies = replies.into_iter();
    match result {
        Ok(outcome) => replies.for_each(|reply| answer(reply, Ok(outcome))),
        Err(error) => {
            let Some(first) = replies.next() else {
                tracing::error!(error = ?error, "sandbox could not change its phase");
                return;
            };
            answer(first, Err(error));
            replies.for_each(|reply| answer(reply, Err(Error::Internal("the joined request failed"))));
        }
    }
}
