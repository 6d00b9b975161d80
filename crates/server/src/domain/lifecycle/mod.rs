//! The lifecycle policy: which command is legal in which phase. No clock, no I/O (contract: control-plane, section 5).
//!
//! ```text
//!  Snapshotting      .------ resume fails -------.
//!    |  ^            v                           |
//!    v  |  .--> Pausing --> Paused --> Resuming -'
//!   Running      ^   |        | |        |   |
//!    |   ^       |   '--------|-|--------|---|--> Stopping --> Gone
//!    |   '-------|------------|-|--------'   |       ^
//!    |           '------------' '------------|-------|
//!    '-------------------------------------- | ------'
//! ```
//! A pause keeps memory or only files, and so does a resume: a sandbox that was paused with its memory can be started from
//! its files. Clients see Pausing as paused, Resuming and Snapshotting as running, and a sandbox in Stopping not at all.
//! The server demotes paused sandboxes when their memory is needed: that is a pause that keeps only files, from Paused.
//! It also parks them, which brings memory to disk and ends the processes: from Paused with memory, through Parking, to the same phase.
//! Processes that end by themselves lead to Stopping while they run, and to a pause that keeps only files while they are
//! frozen. A sandbox paused that way has no processes that could end.

#[cfg(test)]
mod model;
mod session;

use std::time::Duration;

use super::event::KillReason;
use super::network::NetworkChange;

pub use session::{BeyondMaxSession, OnExpiry, Session};

/// The state that a pause keeps and a resume starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The frozen processes, and so everything.
    Memory,
    /// The files on disk.
    Files,
}

/// The phase of a sandbox's lifecycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The processes run.
    Running,
    /// The processes run, except for the moment in which the files are copied.
    Snapshotting,
    /// The processes are being frozen, or ended.
    Pausing(Keep),
    /// The processes are frozen, or gone.
    Paused(Keep),
    /// The memory of the frozen processes is being stored on disk, and the processes ended.
    Parking,
    /// The processes are being thawed, or started.
    Resuming(Keep),
    /// The sandbox is being removed.
    Stopping,
    /// The sandbox is removed.
    Gone,
}

/// A command of a client, an operator or the proxy to a sandbox.
#[derive(Debug, Clone)]
pub enum Command {
    /// Stops the sandbox so that it can be resumed.
    Pause(Keep),
    /// Resumes the sandbox; an error when it runs.
    Resume {
        /// The state that the resume starts from.
        from: Keep,
        /// Length of the session that begins.
        timeout: Duration,
        /// Whether the sandbox is paused at the end of that session; the policy stays as it is when none.
        auto_pause: Option<bool>,
    },
    /// Makes sure that the sandbox runs for at least some time.
    Connect {
        /// The state that a resume starts from.
        from: Keep,
        /// Minimum time for which the sandbox runs.
        timeout: Duration,
    },
    /// Resumes the sandbox for traffic that has arrived.
    Wake,
    /// Releases the memory of a paused sandbox, whose files are kept.
    Demote,
    /// Brings the memory of a paused sandbox to disk.
    Park,
    /// Removes the sandbox.
    Kill(KillReason),
    /// Sets the end of the session, counted from now.
    SetTimeout(Duration),
    /// Moves the end of the session later.
    Refresh(Duration),
    /// Replaces the rules for outgoing traffic; none for the same rules with the present values of secrets.
    SetNetwork(Option<Box<NetworkChange>>),
    /// Takes a snapshot.
    Snapshot(SnapshotOrder),
    /// Takes a snapshot for forks that start from it at once.
    Fork(SnapshotOrder),
}

/// The snapshot to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotOrder {
    /// Name of its files and its memory.
    pub name: String,
    /// Whether memory is kept, if it can be stored.
    pub keep: Keep,
}

/// A change of phase that takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// A pause: Running to Paused, or from Paused with memory to Paused with files only.
    Pause(Keep),
    /// Memory goes to disk: Paused with memory to the same.
    Park,
    /// A resume: Paused to Running.
    Resume(Keep),
    /// A snapshot: Running to Running.
    Snapshot,
    /// The removal of the sandbox: any phase to Gone.
    Stop,
}

/// The decision about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Begin this transition and answer when it has ended.
    Begin(Transition),
    /// Answer with the outcome of the transition in flight.
    Join,
    /// Decide again when the transition in flight has ended.
    Wait,
    /// Apply the command's values; the phase stays.
    Apply,
    /// Refuse the command.
    Deny(Denial),
}

/// The reason for which a command is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// Callers cannot see the sandbox, or the command does not apply to paused sandboxes.
    NotFound,
    /// The sandbox is already paused.
    AlreadyPaused,
    /// The sandbox already runs.
    AlreadyRunning,
    /// Another transition is in flight; a later attempt may succeed.
    InTransition,
    /// The sandbox is being removed.
    BeingKilled,
}

/// Decides what becomes of `command` in `phase`.
pub fn decide(phase: Phase, command: &Command) -> Decision {
    use Decision::{Apply, Begin, Deny, Join, Wait};
    match (phase, command) {
        (Phase::Running, Command::Pause(keep)) => Begin(Transition::Pause(*keep)),
        (Phase::Running, Command::Resume { .. }) => Deny(Denial::AlreadyRunning),
        (Phase::Paused(Keep::Memory), Command::Demote) => Begin(Transition::Pause(Keep::Files)),
        (Phase::Paused(Keep::Memory), Command::Park) => Begin(Transition::Park),
        (Phase::Parking, Command::Park) => Join,
        (Phase::Paused(Keep::Files), Command::Demote | Command::Park) => Deny(Denial::AlreadyPaused),
        (Phase::Parking, Command::Demote) => Deny(Denial::InTransition),
        (
            Phase::Running | Phase::Snapshotting | Phase::Pausing(_) | Phase::Resuming(_),
            Command::Demote | Command::Park,
        ) => Deny(Denial::InTransition),
        (Phase::Running, Command::Connect { .. } | Command::Wake) => Apply,
        (Phase::Running, Command::Snapshot(_) | Command::Fork(_)) => Begin(Transition::Snapshot),

        (
            Phase::Snapshotting,
            Command::Pause(_) | Command::Connect { .. } | Command::Kill(_) | Command::Fork(_),
        ) => Wait,
        (Phase::Snapshotting, Command::Wake) => Apply,
        (Phase::Snapshotting, Command::Resume { .. }) => Deny(Denial::AlreadyRunning),
        (Phase::Snapshotting, Command::Snapshot(_)) => Deny(Denial::InTransition),
        // The session goes on during a snapshot.
        (
            Phase::Running | Phase::Snapshotting,
            Command::SetTimeout(_) | Command::Refresh(_) | Command::SetNetwork(_),
        ) => Apply,

        (Phase::Pausing(_), Command::Pause(_)) => Join,
        (
            Phase::Pausing(_) | Phase::Parking,
            Command::Resume { .. } | Command::Connect { .. } | Command::Wake | Command::Kill(_),
        ) => Wait,

        (Phase::Paused(_) | Phase::Parking, Command::Pause(_) | Command::Fork(_)) => {
            Deny(Denial::AlreadyPaused)
        }
        (Phase::Paused(Keep::Memory), Command::Resume { from, .. } | Command::Connect { from, .. }) => {
            Begin(Transition::Resume(*from))
        }
        (Phase::Paused(Keep::Memory), Command::Wake) => Begin(Transition::Resume(Keep::Memory)),
        (Phase::Paused(Keep::Files), Command::Resume { .. } | Command::Connect { .. }) => {
            Begin(Transition::Resume(Keep::Files))
        }
        // A stray request must not cause a cold start.
        (Phase::Paused(Keep::Files), Command::Wake) => Deny(Denial::NotFound),
        // Clients 2.0 to 2.5 set a timeout first and resume only when that fails.
        (
            Phase::Paused(_) | Phase::Parking,
            Command::SetTimeout(_) | Command::Refresh(_) | Command::SetNetwork(_) | Command::Snapshot(_),
        ) => Deny(Denial::NotFound),

        (Phase::Resuming(_), Command::Pause(_)) => Deny(Denial::InTransition),
        (Phase::Resuming(_), Command::Resume { .. }) => Join,
        (Phase::Resuming(_), Command::Connect { .. } | Command::Wake | Command::Kill(_)) => Wait,

        (
            Phase::Pausing(_) | Phase::Resuming(_),
            Command::SetTimeout(_)
            | Command::Refresh(_)
            | Command::SetNetwork(_)
            | Command::Snapshot(_)
            | Command::Fork(_),
        ) => Deny(Denial::InTransition),

        (Phase::Running | Phase::Paused(_), Command::Kill(_)) => Begin(Transition::Stop),
        (Phase::Stopping, Command::Kill(_)) => Join,
        (Phase::Stopping, Command::Connect { .. }) => Deny(Denial::BeingKilled),
        (Phase::Stopping, _) | (Phase::Gone, _) => Deny(Denial::NotFound),
    }
}

/// The transition that follows when the processes end by themselves in `phase`; none when they are being ended.
pub fn after_crash(phase: Phase) -> Option<Transition> {
    match phase {
        Phase::Running | Phase::Snapshotting | Phase::Pausing(Keep::Memory) => Some(Transition::Stop),
        // The pause has promised to keep memory; the files are all that can still be kept.
        Phase::Paused(Keep::Memory) | Phase::Resuming(Keep::Memory) => Some(Transition::Pause(Keep::Files)),
        Phase::Pausing(Keep::Files) | Phase::Paused(Keep::Files) | Phase::Resuming(Keep::Files) => None,
        // The transition ends the processes itself, and its outcome says what is left.
        Phase::Parking => None,
        Phase::Stopping | Phase::Gone => None,
    }
}

impl Transition {
    /// The phase during the transition.
    pub fn during(self) -> Phase {
        match self {
            Self::Pause(keep) => Phase::Pausing(keep),
            Self::Park => Phase::Parking,
            Self::Resume(from) => Phase::Resuming(from),
            Self::Snapshot => Phase::Snapshotting,
            Self::Stop => Phase::Stopping,
        }
    }

    /// The phase after a transition that succeeded.
    pub fn done(self) -> Phase {
        match self {
            Self::Pause(keep) => Phase::Paused(keep),
            Self::Park => Phase::Paused(Keep::Memory),
            Self::Resume(_) | Self::Snapshot => Phase::Running,
            Self::Stop => Phase::Gone,
        }
    }

    /// The phase after a transition that failed. A stop leads to Gone all the same: leftovers are swept at the next start.
    /// A pause that keeps only files ends in Paused too, since it may already have ended processes.
    pub fn failed(self) -> Phase {
        match self {
            Self::Pause(Keep::Memory) | Self::Snapshot => Phase::Running,
            Self::Pause(Keep::Files) => Phase::Paused(Keep::Files),
            Self::Park => Phase::Paused(Keep::Memory),
            Self::Resume(from) => Phase::Paused(from),
            Self::Stop => Phase::Gone,
        }
    }
}
