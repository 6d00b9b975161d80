//! Decides which failed requests are sent again, and when (contract: control-plane, section 15.7).

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};

/// Number of times that a request is sent again, as in the official SDKs.
pub(crate) const RETRIES: u32 = 3;
/// Pause before the first of the requests that are sent again; doubled for each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Maximum pause, also when the server asks for a longer one.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Pause before a request is sent again after `attempt` others, if the answer to the last one is worth it: when the server says so,
/// and else when it is overloaded or not reachable behind its proxy.
pub(crate) fn after_answer(status: StatusCode, headers: &HeaderMap, attempt: u32) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let is_temporary = matches!(status.as_u16(), 429 | 502 | 503 | 504);
    let is_worth_it = match text("should-retry") {
        Some(asked) if asked.eq_ignore_ascii_case("true") => !status.is_success(),
        Some(asked) if asked.eq_ignore_ascii_case("false") => false,
        _ => is_temporary,
    };
    let asked = text(header::RETRY_AFTER.as_str()).and_then(|seconds| seconds.parse().ok());
    is_worth_it.then(|| asked.map_or_else(|| pause(attempt), Duration::from_secs).min(MAX_PAUSE))
}

/// Pause before a request is sent again whose connection could not be opened, after `attempt` others.
pub(crate) fn pause(attempt: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(attempt)).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(status: u16, headers: &[(&'static str, &'static str)], attempt: u32) -> Option<u128> {
        let pairs = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let headers: HeaderMap = pairs.collect();
        after_answer(StatusCode::from_u16(status).unwrap(), &headers, attempt).map(|pause| pause.as_millis())
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        for status in [429, 502, 503, 504] {
            assert_eq!(asked(status, &[], 0), Some(100), "{status}");
        }
        for status in [200, 400, 401, 404, 409, 500] {
            assert_eq!(asked(status, &[], 0), None, "{status}");
        }
    }

    #[test]
    fn the_servers_word_counts() {
        assert_eq!(asked(503, &[("should-retry", "false")], 0), None);
        assert_eq!(asked(500, &[("should-retry", "true")], 0), Some(100));
        assert_eq!(asked(429, &[("retry-after", "2")], 0), Some(2_000));
        assert_eq!(asked(429, &[("retry-after", "3600")], 0), Some(10_000), "bounded");
        assert_eq!(asked(429, &[("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")], 1), Some(200), "a date");
    }

    #[test]
    fn pauses_grow_to_a_limit() {
        assert_eq!(pause(3), Duration::from_millis(800));
        assert_eq!(pause(100), MAX_PAUSE);
    }
}
