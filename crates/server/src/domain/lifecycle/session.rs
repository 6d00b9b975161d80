//! Sessions: how long a sandbox runs, and the transition at the end. The time comes in as a value.

use std::time::Duration;

use jiff::Timestamp;

use super::{Keep, Transition};

/// The transition of a running sandbox at the end of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// The sandbox is removed.
    Kill,
    /// The sandbox is paused.
    Pause,
    /// The sandbox is paused, and only its files are kept.
    PauseFiles,
}

impl OnExpiry {
    /// The transition that the policy stands for.
    pub fn transition(self) -> Transition {
        match self {
            Self::Kill => Transition::Stop,
            Self::Pause => Transition::Pause(Keep::Memory),
            Self::PauseFiles => Transition::Pause(Keep::Files),
        }
    }

    /// The policy after a resume that says whether to pause at all. A resume cannot say what such a pause keeps.
    pub fn overridden(self, pauses: bool) -> Self {
        match (self, pauses) {
            (_, false) => Self::Kill,
            (Self::Kill, true) => Self::Pause,
            (kept, true) => kept,
        }
    }
}

/// A session: from a start or resume to the planned end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// Start of the session.
    pub started_at: Timestamp,
    /// Planned end; never later than the start plus the maximum session.
    pub end_at: Timestamp,
}

/// The requested end lies beyond the maximum session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeyondMaxSession;

impl Session {
    /// A session that begins `now` and lasts for `timeout`, at most `max`.
    pub fn begin(now: Timestamp, timeout: Duration, max: Duration) -> Self {
        Self { started_at: now, end_at: later(now, timeout.min(max)) }
    }

    /// Moves the end to `timeout` from `now`, earlier or later; silently at most the maximum session.
    pub fn set_end(&mut self, now: Timestamp, timeout: Duration, max: Duration) {
        self.end_at = later(now, timeout).min(later(self.started_at, max));
    }

    /// Moves the end to `timeout` from `now` if that is later; at most the maximum session.
    pub fn extend(&mut self, now: Timestamp, timeout: Duration, max: Duration) {
        self.end_at = later(now, timeout).min(later(self.started_at, max)).max(self.end_at);
    }

    /// Moves the end like [`Session::extend`], but fails when it would lie beyond the maximum session.
    pub fn try_extend(
        &mut self,
        now: Timestamp,
        timeout: Duration,
        max: Duration,
    ) -> Result<(), BeyondMaxSession> {
        if later(now, timeout) > later(self.started_at, max) {
            return Err(BeyondMaxSession);
        }
        self.extend(now, timeout, max);
        Ok(())
    }

    /// Whether the session is over.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now >= self.end_at
    }
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_SESSION: Duration = Duration::from_secs(1000);

    #[test]
    fn connect_never_shortens_and_refuses_what_is_too_long() {
        let start = Timestamp::from_second(0).unwrap();
        let mut session = Session::begin(start, Duration::from_secs(100), MAX_SESSION);
        let end = session.end_at;
        assert_eq!(session.try_extend(start, Duration::from_secs(10), MAX_SESSION), Ok(()));
        assert_eq!(session.end_at, end);
        assert_eq!(session.try_extend(start, Duration::from_secs(1001), MAX_SESSION), Err(BeyondMaxSession));
        assert_eq!(session.end_at, end);
    }
}
