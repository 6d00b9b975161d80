//! Events of a sandbox's lifecycle, as the API and webhooks name them (contract: dashboard, sections 4 and 5).

use jiff::Timestamp;

use super::lifecycle::Keep;
use crate::{Error, Result};

/// The types of events that the API knows.
pub const EVENT_TYPES: [&str; 6] = [
    LifecycleEvent::CREATED,
    "sandbox.lifecycle.updated",
    "sandbox.lifecycle.paused",
    "sandbox.lifecycle.resumed",
    "sandbox.lifecycle.killed",
    "sandbox.lifecycle.checkpointed",
];

/// A change of a sandbox that the API reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LifecycleEvent {
    /// The sandbox was started from a template.
    Created,
    /// The end of its session was set to this time.
    TimeoutSet(Timestamp),
    /// The network rules were replaced.
    NetworkSet,
    /// The sandbox was paused.
    Paused,
    /// The memory of the paused sandbox was released, and its files were kept.
    Demoted,
    /// The sandbox runs again.
    Resumed,
    /// A snapshot was taken that has this; the sandbox goes on.
    Checkpointed(Keep),
    /// The sandbox was started from a snapshot whose memory could not be restored, with its files.
    StartedFromFiles,
    /// The sandbox was removed.
    Killed(KillReason),
}

/// The reason for which a sandbox was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillReason {
    /// The processes ended by themselves.
    Unknown,
    /// A client has killed the sandbox.
    Request,
    /// The session was over.
    Timeout,
    /// An operator has killed the sandbox.
    Admin,
    /// The sandbox did not survive a restart of the server or the host.
    Orphaned,
}

impl LifecycleEvent {
    /// The type of the event of a new sandbox, which starts are counted by.
    pub(crate) const CREATED: &'static str = "sandbox.lifecycle.created";

    /// The event's type, one of [`EVENT_TYPES`].
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Created => EVENT_TYPES[0],
            Self::TimeoutSet(_) | Self::NetworkSet | Self::Demoted | Self::StartedFromFiles => EVENT_TYPES[1],
            Self::Paused => EVENT_TYPES[2],
            Self::Resumed => EVENT_TYPES[3],
            Self::Killed(_) => EVENT_TYPES[4],
            Self::Checkpointed(_) => EVENT_TYPES[5],
        }
    }

    /// The event's label in the API.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Created => "create",
            Self::TimeoutSet(_) | Self::NetworkSet | Self::Demoted | Self::StartedFromFiles => "update",
            Self::Paused => "pause",
            Self::Resumed => "resume",
            Self::Killed(_) => "kill",
            Self::Checkpointed(_) => "checkpoint",
        }
    }
}

impl KillReason {
    /// The reason's name in the API.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Request => "request",
            Self::Timeout => "timeout",
            Self::Admin => "admin",
            Self::Orphaned => "orphaned",
        }
    }
}

/// Fails when a caller names a type of event that does not exist.
pub(crate) fn check_types<S: AsRef<str>>(types: &[S]) -> Result<()> {
    match types.iter().find(|kind| !EVENT_TYPES.contains(&kind.as_ref())) {
        None => Ok(()),
        Some(other) => Err(Error::InvalidRequest(format!(
            "\"{}\" is not a type of event: they are {}",
            other.as_ref(),
            EVENT_TYPES.join(", ")
        ))),
    }
}
