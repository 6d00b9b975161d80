//! Which request is legal in which phase: no clock, no I/O (contract: control-plane, section 5).
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
//! A pause keeps memory or only files, and so does the way back: what was paused with its memory can be started from its
//! files. From outside, Pausing is paused, Resuming and Snapshotting are running, Stopping is not there. Processes that end
//! by themselves lead to Stopping while they run, and to a pause that keeps only files while they are frozen: that one has
//! nothing left that could end.

#[cfg(test)]
mod model;
mod session;

pub use session::{BeyondLongestSession, OnExpiry, Session};

/// What a pause keeps, and what a resume starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Processes, and so everything.
    Memory,
    /// What is on disk.
    Files,
}

/// Where a sandbox is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its processes run.
    Running,
    /// They run, but for the moment in which their files are copied.
    Snapshotting,
    /// They are being frozen, or ended.
    Pausing(Keep),
    /// They are frozen, or gone.
    Paused(Keep),
    /// They are being thawed, or started.
    Resuming(Keep),
    /// Everything of it is being removed.
    Stopping,
    /// Nothing of it is left.
    Gone,
}

/// What may be asked of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Stop it so that it can go on.
    Pause(Keep),
    /// Let it go on; running is an error.
    Resume(Keep),
    /// Make sure that it runs, for at least some time.
    Connect(Keep),
    /// Traffic arrived that may wake it.
    Wake,
    /// Remove it.
    Kill,
    /// Set its end.
    SetTimeout,
    /// Move its end later.
    Refresh,
    /// Replace what it may reach.
    SetNetwork,
    /// Keep its files as they are.
    Snapshot,
    /// The same, for sandboxes that begin with them at once.
    Fork,
}

/// A change of phase that takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// Running to Paused.
    Pause(Keep),
    /// Paused to Running.
    Resume(Keep),
    /// Running to Running.
    Snapshot,
    /// To Gone.
    Stop,
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Start this change and answer when it has ended.
    Begin(Transition),
    /// Answer with the outcome of the change under way.
    Join,
    /// Ask again when the change under way has ended.
    Wait,
    /// No change of phase is needed: apply its values.
    Apply,
    /// Refuse.
    Deny(Denial),
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// Callers cannot see it, or the request does not apply to paused sandboxes.
    NotFound,
    /// It is paused already.
    AlreadyPaused,
    /// It runs already.
    AlreadyRunning,
    /// Try again later.
    InTransition,
    /// It is being removed.
    BeingKilled,
}

/// Decides about `ask` in `phase`.
pub fn decide(phase: Phase, ask: Ask) -> Decision {
    use Decision::{Apply, Begin, Deny, Join, Wait};
    match (phase, ask) {
        (Phase::Running, Ask::Pause(keep)) => Begin(Transition::Pause(keep)),
        (Phase::Running, Ask::Resume(_)) => Deny(Denial::AlreadyRunning),
        (Phase::Running, Ask::Connect(_) | Ask::Wake) => Apply,
        (Phase::Running, Ask::Snapshot | Ask::Fork) => Begin(Transition::Snapshot),

        (Phase::Snapshotting, Ask::Pause(_) | Ask::Connect(_) | Ask::Kill | Ask::Fork) => Wait,
        (Phase::Snapshotting, Ask::Wake) => Apply,
        (Phase::Snapshotting, Ask::Resume(_)) => Deny(Denial::AlreadyRunning),
        (Phase::Snapshotting, Ask::Snapshot) => Deny(Denial::InTransition),
        // Its session goes on meanwhile.
        (Phase::Running | Phase::Snapshotting, Ask::SetTimeout | Ask::Refresh | Ask::SetNetwork) => Apply,

        (Phase::Pausing(_), Ask::Pause(_)) => Join,
        (Phase::Pausing(_), Ask::Resume(_) | Ask::Connect(_) | Ask::Wake | Ask::Kill) => Wait,

        (Phase::Paused(_), Ask::Pause(_) | Ask::Fork) => Deny(Denial::AlreadyPaused),
        (Phase::Paused(Keep::Memory), Ask::Resume(from) | Ask::Connect(from)) => {
            Begin(Transition::Resume(from))
        }
        (Phase::Paused(Keep::Memory), Ask::Wake) => Begin(Transition::Resume(Keep::Memory)),
        (Phase::Paused(Keep::Files), Ask::Resume(_) | Ask::Connect(_)) => {
            Begin(Transition::Resume(Keep::Files))
        }
        // A cold start is nothing that a stray request should set off.
        (Phase::Paused(Keep::Files), Ask::Wake) => Deny(Denial::NotFound),
        // Clients 2.0 to 2.5 set a timeout first and resume only when that fails.
        (Phase::Paused(_), Ask::SetTimeout | Ask::Refresh | Ask::SetNetwork | Ask::Snapshot) => {
            Deny(Denial::NotFound)
        }

        (Phase::Resuming(_), Ask::Pause(_)) => Deny(Denial::InTransition),
        (Phase::Resuming(_), Ask::Resume(_)) => Join,
        (Phase::Resuming(_), Ask::Connect(_) | Ask::Wake | Ask::Kill) => Wait,

        (
            Phase::Pausing(_) | Phase::Resuming(_),
            Ask::SetTimeout | Ask::Refresh | Ask::SetNetwork | Ask::Snapshot | Ask::Fork,
        ) => Deny(Denial::InTransition),

        (Phase::Running | Phase::Paused(_), Ask::Kill) => Begin(Transition::Stop),
        (Phase::Stopping, Ask::Kill) => Join,
        (Phase::Stopping, Ask::Connect(_)) => Deny(Denial::BeingKilled),
        (Phase::Stopping, _) | (Phase::Gone, _) => Deny(Denial::NotFound),
    }
}

/// What follows when the processes end by themselves in `phase`; nothing when that is what is being done.
pub fn after_crash(phase: Phase) -> Option<Transition> {
    match phase {
        Phase::Running | Phase::Snapshotting | Phase::Pausing(Keep::Memory) => Some(Transition::Stop),
        // What was promised to be kept is kept as far as it can be.
        Phase::Paused(Keep::Memory) | Phase::Resuming(Keep::Memory) => Some(Transition::Pause(Keep::Files)),
        Phase::Pausing(Keep::Files) | Phase::Paused(Keep::Files) | Phase::Resuming(Keep::Files) => None,
        Phase::Stopping | Phase::Gone => None,
    }
}

impl Transition {
    /// The phase while it is under way.
    pub fn during(self) -> Phase {
        match self {
            Self::Pause(keep) => Phase::Pausing(keep),
            Self::Resume(from) => Phase::Resuming(from),
            Self::Snapshot => Phase::Snapshotting,
            Self::Stop => Phase::Stopping,
        }
    }

    /// The phase when it has succeeded.
    pub fn done(self) -> Phase {
        match self {
            Self::Pause(keep) => Phase::Paused(keep),
            Self::Resume(_) | Self::Snapshot => Phase::Running,
            Self::Stop => Phase::Gone,
        }
    }

    /// The phase when it has failed. A stop does not fail: what is left is swept at the next start. Neither does a pause
    /// that keeps only files come back from where it has begun to end processes.
    pub fn failed(self) -> Phase {
        match self {
            Self::Pause(Keep::Memory) | Self::Snapshot => Phase::Running,
            Self::Pause(Keep::Files) => Phase::Paused(Keep::Files),
            Self::Resume(from) => Phase::Paused(from),
            Self::Stop => Phase::Gone,
        }
    }
}
