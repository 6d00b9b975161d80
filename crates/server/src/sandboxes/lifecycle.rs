//! Which request is legal in which phase: no clock, no I/O (contract: control-plane, section 5).
//!
//! ```text
//!            .--------- resume fails ---------.
//!            v                                |
//! Running --> Pausing --> Paused --> Resuming-'
//!  ^  |  ^------'  |         |          |
//!  |  |  fails     |         |          |
//!  |  |            v         v          |
//!  |  '--------> Stopping --> Gone      |
//!  '------------------------------------'
//! ```
//! From outside, Pausing is paused, Resuming is running, Stopping is not there. A crash leads to Stopping from anywhere.

use std::time::Duration;

use jiff::Timestamp;

/// Where a sandbox is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its processes run.
    Running,
    /// They are being frozen.
    Pausing,
    /// They are frozen.
    Paused,
    /// They are being thawed.
    Resuming,
    /// Everything of it is being removed.
    Stopping,
    /// Nothing of it is left.
    Gone,
}

/// What may be asked of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Freeze it.
    Pause,
    /// Thaw it; running is an error.
    Resume,
    /// Make sure that it runs, for at least some time.
    Connect,
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
}

/// A change of phase that takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// Running to Paused.
    Pause,
    /// Paused to Running.
    Resume,
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
        (Phase::Running, Ask::Pause) => Begin(Transition::Pause),
        (Phase::Running, Ask::Resume) => Deny(Denial::AlreadyRunning),
        (Phase::Running, Ask::Connect | Ask::Wake) => Apply,
        (Phase::Running, Ask::SetTimeout | Ask::Refresh | Ask::SetNetwork) => Apply,

        (Phase::Pausing, Ask::Pause) => Join,
        (Phase::Pausing, Ask::Resume | Ask::Connect | Ask::Wake | Ask::Kill) => Wait,

        (Phase::Paused, Ask::Pause) => Deny(Denial::AlreadyPaused),
        (Phase::Paused, Ask::Resume | Ask::Connect | Ask::Wake) => Begin(Transition::Resume),
        // Clients 2.0 to 2.5 set a timeout first and resume only when that fails.
        (Phase::Paused, Ask::SetTimeout | Ask::Refresh | Ask::SetNetwork) => Deny(Denial::NotFound),

        (Phase::Resuming, Ask::Pause) => Deny(Denial::InTransition),
        (Phase::Resuming, Ask::Resume) => Join,
        (Phase::Resuming, Ask::Connect | Ask::Wake | Ask::Kill) => Wait,

        (Phase::Pausing | Phase::Resuming, Ask::SetTimeout | Ask::Refresh | Ask::SetNetwork) => {
            Deny(Denial::InTransition)
        }

        (Phase::Running | Phase::Paused, Ask::Kill) => Begin(Transition::Stop),
        (Phase::Stopping, Ask::Kill) => Join,
        (Phase::Stopping, Ask::Connect) => Deny(Denial::BeingKilled),
        (Phase::Stopping, _) | (Phase::Gone, _) => Deny(Denial::NotFound),
    }
}

impl Transition {
    /// The phase while it is under way.
    pub fn during(self) -> Phase {
        match self {
            Self::Pause => Phase::Pausing,
            Self::Resume => Phase::Resuming,
            Self::Stop => Phase::Stopping,
        }
    }

    /// The phase when it has succeeded.
    pub fn done(self) -> Phase {
        match self {
            Self::Pause => Phase::Paused,
            Self::Resume => Phase::Running,
            Self::Stop => Phase::Gone,
        }
    }

    /// The phase when it has failed. A stop does not fail: what is left is swept at the next start.
    pub fn failed(self) -> Phase {
        match self {
            Self::Pause => Phase::Running,
            Self::Resume => Phase::Paused,
            Self::Stop => Phase::Gone,
        }
    }
}

/// What happens when a running sandbox's time is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExpiry {
    /// It is removed.
    Kill,
    /// It is paused.
    Pause,
}

impl OnExpiry {
    /// The change it stands for.
    pub fn transition(self) -> Transition {
        match self {
            Self::Kill => Transition::Stop,
            Self::Pause => Transition::Pause,
        }
    }
}

/// One session: from a start or resume to the planned end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// When it began.
    pub started_at: Timestamp,
    /// When it ends; never later than the start plus the longest session.
    pub end_at: Timestamp,
}

/// The end asked for lies beyond the longest session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeyondLongestSession;

impl Session {
    /// A session from `now` on, for `timeout` but at most `longest`.
    pub fn begin(now: Timestamp, timeout: Duration, longest: Duration) -> Self {
        Self { started_at: now, end_at: later(now, timeout.min(longest)) }
    }

    /// Moves the end to `timeout` from `now`, earlier or later; silently at most the longest session.
    pub fn set_end(&mut self, now: Timestamp, timeout: Duration, longest: Duration) {
        self.end_at = later(now, timeout).min(later(self.started_at, longest));
    }

    /// Moves the end to `timeout` from `now` if that is later; at most the longest session.
    pub fn extend(&mut self, now: Timestamp, timeout: Duration, longest: Duration) {
        self.end_at = later(now, timeout).min(later(self.started_at, longest)).max(self.end_at);
    }

    /// As [`Session::extend`], but an end beyond the longest session is an error.
    pub fn try_extend(
        &mut self,
        now: Timestamp,
        timeout: Duration,
        longest: Duration,
    ) -> Result<(), BeyondLongestSession> {
        if later(now, timeout) > later(self.started_at, longest) {
            return Err(BeyondLongestSession);
        }
        self.extend(now, timeout, longest);
        Ok(())
    }

    /// Whether time is up.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now >= self.end_at
    }
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}
