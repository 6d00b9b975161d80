//! Reads the protocol's request headers. Pure.

use std::time::Duration;

use http::HeaderMap;

use crate::error::{Error, Result};

/// Keepalive interval of clients that send none, or a malformed one.
const DEFAULT_KEEPALIVE: Duration = Duration::from_secs(90);

/// The text of a header; `None` when it is missing or not text.
pub fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Reads `Connect-Timeout-Ms`: at most ten ASCII digits.
pub fn timeout(value: Option<&str>) -> Result<Option<Duration>> {
    let Some(value) = value else { return Ok(None) };
    let digits = (1..=10).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_digit());
    match value.parse::<u64>() {
        Ok(millis) if digits => Ok(Some(Duration::from_millis(millis))),
        _ => Err(Error::invalid_argument(format!("invalid Connect-Timeout-Ms `{value}`"))),
    }
}

/// Reads `Keepalive-Ping-Interval`, in whole seconds.
pub fn keepalive(value: Option<&str>) -> Duration {
    match value.and_then(|v| v.trim().parse::<u32>().ok()) {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.into()),
        _ => DEFAULT_KEEPALIVE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_takes_integers_only() {
        assert_eq!(timeout(None), Ok(None));
        assert_eq!(timeout(Some("60000")), Ok(Some(Duration::from_secs(60))));
        assert_eq!(timeout(Some("0")), Ok(Some(Duration::ZERO)));
        for bad in ["", "500.0", "-1", "+1", "12345678901", "1 "] {
            assert!(timeout(Some(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn keepalive_falls_back_to_the_default() {
        assert_eq!(keepalive(Some("50")), Duration::from_secs(50));
        for bad in [None, Some("0"), Some("-3"), Some("x"), Some("1.5")] {
            assert_eq!(keepalive(bad), DEFAULT_KEEPALIVE, "{bad:?}");
        }
    }
}
