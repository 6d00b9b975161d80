//! Sessions of users who have logged in. They are in memory, so that no credential is on disk; a restart of the server ends them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, header};
use sandcove_wire::secret::Secret;
use sha2::{Digest, Sha256};

use crate::random;
use crate::state::credentials::{ADMIN_TOKEN, API_KEY, SECURE_SESSION_COOKIE, SESSION_COOKIE};

/// Time after the last request until a session ends.
const IDLE: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of sessions; beyond it, the one that was used least recently ends.
const MAX_SESSIONS: usize = 1000;

/// A credential that a user has logged in with.
#[derive(Debug, Clone)]
pub(super) enum Credential {
    /// An API key.
    Key(Secret),
    /// An access token.
    Token(Secret),
    /// The admin token.
    Admin(Secret),
}

impl Credential {
    /// The kind, as pages know it.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::Token(_) => "token",
            Self::Admin(_) => "admin",
        }
    }

    /// Adds the credential to a request, as a client of the API would. Nothing is added when it can be no header.
    pub(super) fn put_into(&self, headers: &mut HeaderMap) {
        let (name, text) = match self {
            Self::Key(key) => (API_KEY, key.expose().to_owned()),
            Self::Token(token) => (header::AUTHORIZATION.as_str(), format!("Bearer {}", token.expose())),
            Self::Admin(token) => (ADMIN_TOKEN, token.expose().to_owned()),
        };
        if let Ok(mut value) = HeaderValue::from_str(&text)
            && let Ok(name) = http::HeaderName::from_bytes(name.as_bytes())
        {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
}

/// The sessions of a server.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// By the SHA-256 of their cookies.
    open: Mutex<HashMap<[u8; 32], Session>>,
}

#[derive(Debug)]
struct Session {
    credential: Credential,
    used: Instant,
}

impl Sessions {
    /// Begins a session. Returns the value of the `Set-Cookie` header.
    pub(super) fn begin(&self, credential: Credential, is_secure: bool) -> String {
        let token = random::token();
        let mut open = self.lock();
        let now = Instant::now();
        open.retain(|_, session| now.duration_since(session.used) < IDLE);
        if open.len() >= MAX_SESSIONS {
            let oldest = open.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| *id);
            oldest.and_then(|id| open.remove(&id));
        }
        open.insert(digest(token.expose()), Session { credential, used: now });
        cookie(token.expose(), is_secure)
    }

    /// The credential of a request's session.
    pub(super) fn find(&self, headers: &HeaderMap, is_secure: bool) -> Option<Credential> {
        let mut open = self.lock();
        let session = given(headers, is_secure).find_map(|token| {
            let id = digest(token);
            let is_over = open.get(&id)?.used.elapsed() >= IDLE;
            if is_over { None } else { Some(id) }
        });
        let session = open.get_mut(&session?)?;
        session.used = Instant::now();
        Some(session.credential.clone())
    }

    /// Ends a request's session. Returns the value of the `Set-Cookie` header.
    pub(super) fn end(&self, headers: &HeaderMap, is_secure: bool) -> String {
        let mut open = self.lock();
        for token in given(headers, is_secure) {
            open.remove(&digest(token));
        }
        format!("{}; Max-Age=0", cookie("", is_secure))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// With TLS, the name begins with `__Host-`: no page of a sandbox, whose host is below the server's, can set such a cookie. Browsers demand the
/// path `/` for it. Without TLS the cookie is sent to the dashboard only.
fn cookie(token: &str, is_secure: bool) -> String {
    match is_secure {
        true => format!("{SECURE_SESSION_COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/; Secure"),
        false => format!("{SESSION_COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/dashboard"),
    }
}

/// Session cookies of a request.
fn given(headers: &HeaderMap, is_secure: bool) -> impl Iterator<Item = &str> {
    let wanted = if is_secure { SECURE_SESSION_COOKIE } else { SESSION_COOKIE };
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .filter_map(move |(name, value)| (name == wanted).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookie: &str) -> HeaderMap {
        let cookie = cookie.split(';').next().unwrap();
        [(header::COOKIE, HeaderValue::from_str(&format!("theme=dark; {cookie}")).unwrap())]
            .into_iter()
            .collect()
    }

    #[test]
    fn a_session_lasts_until_its_user_logs_out() {
        let sessions = Sessions::default();
        for is_secure in [true, false] {
            let cookie = sessions.begin(Credential::Key(Secret::new("e2b_1")), is_secure);
            assert!(cookie.contains("; HttpOnly; SameSite=Strict; Path=/"), "{cookie}");
            assert!(!cookie.contains("e2b_1") && !cookie.contains("Domain"), "{cookie}");
            assert!(sessions.find(&headers(&cookie), is_secure).is_some());
            assert!(sessions.find(&headers(&cookie), !is_secure).is_none(), "a cookie of the other kind");
            sessions.end(&headers(&cookie), is_secure);
            assert!(sessions.find(&headers(&cookie), is_secure).is_none());
        }
        assert!(sessions.find(&headers("sandcove_dashboard="), false).is_none());
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let sessions = Sessions::default();
        let first = sessions.begin(Credential::Key(Secret::new("e2b_1")), false);
        for _ in 0..MAX_SESSIONS {
            sessions.begin(Credential::Key(Secret::new("e2b_1")), false);
        }
        assert_eq!(sessions.lock().len(), MAX_SESSIONS);
        assert!(sessions.find(&headers(&first), false).is_none());
    }
}
