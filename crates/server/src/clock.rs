//! The wall clock, as coarse as the store keeps it, so that a time read back equals the time given out.

use jiff::Timestamp;

/// Now, in whole microseconds.
pub(crate) fn now() -> Timestamp {
    from_micros(Timestamp::now().as_microsecond())
}

/// A time from the store; values no clock can show become the nearest one it can.
pub(crate) fn from_micros(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 { Timestamp::MIN } else { Timestamp::MAX })
}
