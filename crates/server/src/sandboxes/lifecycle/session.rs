//! How long a sandbox runs, and what happens then: time comes in as a value.

use std::time::Duration;

use jiff::Timestamp;

use super::{Keep, Transition};

/// What happens when a running sandbox's time is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// It is removed.
    Kill,
    /// It is paused.
    Pause,
    /// It is paused, and only its files are kept.
    PauseFiles,
}

impl OnExpiry {
    /// The change it stands for.
    pub fn transition(self) -> Transition {
        match self {
            Self::Kill => Transition::Stop,
            Self::Pause => Transition::Pause(Keep::Memory),
            Self::PauseFiles => Transition::Pause(Keep::Files),
        }
    }

    /// As it is when a resume says whether to pause at all. What such a pause keeps is not its to say.
    pub fn overridden(self, pauses: bool) -> Self {
        match (self, pauses) {
            (_, false) => Self::Kill,
            (Self::Kill, true) => Self::Pause,
            (kept, true) => kept,
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

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(1000);

    #[test]
    fn connect_never_shortens_and_refuses_what_is_too_long() {
        let start = Timestamp::from_second(0).unwrap();
        let mut session = Session::begin(start, Duration::from_secs(100), LONGEST);
        let end = session.end_at;
        assert_eq!(session.try_extend(start, Duration::from_secs(10), LONGEST), Ok(()));
        assert_eq!(session.end_at, end);
        assert_eq!(session.try_extend(start, Duration::from_secs(1001), LONGEST), Err(BeyondLongestSession));
        assert_eq!(session.end_at, end);
    }
}
