//! Every request counted, and teams kept to a rate (contract: control-plane, section 1).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, Method};
use tracing::Span;
use uuid::Uuid;

use crate::app::App;
use crate::{Error, Result, traces};

const WINDOW: Duration = Duration::from_secs(60);

/// Which call a request is: its method and the pattern its path matched.
type Call = (Method, String);

/// Requests of teams in the present window, by call.
#[derive(Debug)]
pub(crate) struct Limiter {
    most: Option<u32>,
    windows: Mutex<HashMap<(Uuid, Call), Window>>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    began: Instant,
    used: u32,
}

/// What is left of a team's window, as clients are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Allowance {
    limit: u32,
    remaining: u32,
    /// Seconds, at least 1.
    reset: u64,
}

/// Where the one who finds out about the team leaves its allowance, for the answer.
#[derive(Debug, Clone, Default)]
struct Note(Arc<OnceLock<Allowance>>);

impl Limiter {
    pub(crate) fn new(most: Option<u32>) -> Self {
        Self { most, windows: Mutex::default() }
    }

    /// Counts a request of `team`; an error when it is one too many.
    pub(super) fn count(&self, team: Uuid, parts: &Parts) -> Result<()> {
        let Some(most) = self.most else { return Ok(()) };
        let (over, allowance) = self.next(most, (team, call(parts)), Instant::now());
        if let Some(note) = parts.extensions.get::<Note>() {
            // Set twice when a handler asks for the team twice; both are the same request.
            let _ = note.0.set(allowance);
        }
        if over { Err(Error::TooManyRequests(allowance.reset)) } else { Ok(()) }
    }

    fn next(&self, most: u32, key: (Uuid, Call), now: Instant) -> (bool, Allowance) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = Window { began: now, used: 0 };
        if !windows.contains_key(&key) {
            // Teams and routes are few; what nobody uses any more is dropped when somebody new comes.
            windows.retain(|_, window| now.duration_since(window.began) < WINDOW);
        }
        let window = windows.entry(key).or_insert(fresh);
        if now.duration_since(window.began) >= WINDOW {
            *window = fresh;
        }
        let over = window.used >= most;
        window.used = window.used.saturating_add(1).min(most);
        let left = WINDOW.saturating_sub(now.duration_since(window.began));
        let reset = left.as_secs_f64().ceil().max(1.0) as u64;
        (over, Allowance { limit: most, remaining: most - window.used, reset })
    }
}

/// The layer around every route.
pub(super) async fn measure(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let route = matched(request.extensions()).unwrap_or("none").to_owned();
    let span = Span::current();
    if !span.is_disabled() && route != "none" {
        span.record("http.route", route.as_str());
        traces::rename(&span, format!("{method} {route}"));
    }
    let note = Note::default();
    request.extensions_mut().insert(note.clone());
    let mut answer = next.run(request).await;
    if let Some(allowance) = note.0.get() {
        let headers = answer.headers_mut();
        headers.insert("ratelimit-limit", HeaderValue::from(allowance.limit));
        headers.insert("ratelimit-remaining", HeaderValue::from(allowance.remaining));
        headers.insert("ratelimit-reset", HeaderValue::from(allowance.reset));
    }
    let known = if route == "none" { "other" } else { method.as_str() };
    app.telemetry().answered(known, &route, answer.status().as_u16(), began.elapsed());
    answer
}

fn call(parts: &Parts) -> Call {
    (parts.method.clone(), matched(&parts.extensions).unwrap_or_default().to_owned())
}

fn matched(extensions: &http::Extensions) -> Option<&str> {
    extensions.get::<MatchedPath>().map(MatchedPath::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends_and_is_its_teams_and_calls_own() {
        let limiter = Limiter::new(Some(2));
        let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
        let get = |path: &str| (Method::GET, path.to_owned());
        let now = Instant::now();
        assert_eq!(limiter.next(2, (a, get("/x")), now).1, Allowance { limit: 2, remaining: 1, reset: 60 });
        let later = now + Duration::from_millis(59_500);
        assert_eq!(limiter.next(2, (a, get("/x")), later).1, Allowance { limit: 2, remaining: 0, reset: 1 });
        assert!(limiter.next(2, (a, get("/x")), later).0);
        assert!(!limiter.next(2, (a, get("/y")), later).0);
        assert!(!limiter.next(2, (b, get("/x")), later).0);
        assert!(!limiter.next(2, (a, get("/x")), now + WINDOW).0);
        // Only what is still in use is kept.
        assert!(!limiter.next(2, (b, get("/z")), now + WINDOW * 3).0);
        assert_eq!(limiter.windows.lock().unwrap().len(), 1);
    }
}
