//! The wall clock, in the resolution of the store, so that a stored time equals the time that was returned to a client.

use jiff::Timestamp;

/// The present time, in whole microseconds.
pub(crate) fn now() -> Timestamp {
    from_micros(Timestamp::now().as_microsecond())
}

/// A time from the store; a value outside the range of [`Timestamp`] becomes the nearest one within.
pub(crate) fn from_micros(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 { Timestamp::MIN } else { Timestamp::MAX })
}
