//! The rate limit of the API, per team and call (contract: control-plane, section 1).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::Method;
use uuid::Uuid;

const WINDOW: Duration = Duration::from_secs(60);

/// A call of the API: the method, and the pattern that the path matched.
pub(crate) type Call = (Method, String);

/// Requests of teams in the present window, by call.
#[derive(Debug)]
pub(crate) struct Limiter {
    max: Option<u32>,
    windows: Mutex<HashMap<(Uuid, Call), Window>>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    began: Instant,
    used: u32,
}

/// The rest of a team's window, as clients see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    /// Seconds until the window ends, at least 1.
    pub(crate) reset: u64,
    /// Whether the counted request was one too many.
    pub(crate) is_exceeded: bool,
}

impl Limiter {
    pub(crate) fn new(max: Option<u32>) -> Self {
        Self { max, windows: Mutex::default() }
    }

    /// Counts a request of `team`; none without a limit.
    pub(crate) fn count(&self, team: Uuid, call: Call) -> Option<Allowance> {
        self.max.map(|max| self.next(max, (team, call), Instant::now()))
    }

    fn next(&self, max: u32, key: (Uuid, Call), now: Instant) -> Allowance {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = Window { began: now, used: 0 };
        if !windows.contains_key(&key) {
            // Teams and routes are few; windows that are over are dropped when a new one is added.
            windows.retain(|_, window| now.duration_since(window.began) < WINDOW);
        }
        let window = windows.entry(key).or_insert(fresh);
        if now.duration_since(window.began) >= WINDOW {
            *window = fresh;
        }
        let is_exceeded = window.used >= max;
        window.used = window.used.saturating_add(1).min(max);
        let left = WINDOW.saturating_sub(now.duration_since(window.began));
        let reset = left.as_secs_f64().ceil().max(1.0) as u64;
        Allowance { limit: max, remaining: max - window.used, reset, is_exceeded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends_and_is_its_teams_and_calls_own() {
        let limiter = Limiter::new(Some(2));
        let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
        let get = |path: &str| (Method::GET, path.to_owned());
        let allowance = |remaining, reset| Allowance { limit: 2, remaining, reset, is_exceeded: false };
        let now = Instant::now();
        assert_eq!(limiter.next(2, (a, get("/x")), now), allowance(1, 60));
        let later = now + Duration::from_millis(59_500);
        assert_eq!(limiter.next(2, (a, get("/x")), later), allowance(0, 1));
        assert!(limiter.next(2, (a, get("/x")), later).is_exceeded);
        assert!(!limiter.next(2, (a, get("/y")), later).is_exceeded);
        assert!(!limiter.next(2, (b, get("/x")), later).is_exceeded);
        assert!(!limiter.next(2, (a, get("/x")), now + WINDOW).is_exceeded);
        // Only windows in use are kept.
        assert!(!limiter.next(2, (b, get("/z")), now + WINDOW * 3).is_exceeded);
        assert_eq!(limiter.windows.lock().unwrap().len(), 1);
    }
}
