//! Ids of requests, by which an answer is found in the log: `X-Request-Id`.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, Response};
use uuid::Uuid;

/// The header, of requests and of answers.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// Maximum length of an id that a client has chosen.
const MAX_LENGTH: usize = 128;

/// The id of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    /// The id that the client sends, if it may be logged as it is; a new one otherwise.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut given = headers.get_all(&HEADER).iter();
        match (given.next(), given.next()) {
            (Some(id), None) if is_well_formed(id.as_bytes()) => Self(id.clone()),
            _ => Self::new(),
        }
    }

    fn new() -> Self {
        let text = Uuid::new_v4().to_string();
        Self(HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("unknown")))
    }

    /// Adds the id to an answer. A service in a sandbox may have ids of its own, which stay.
    pub(crate) fn stamp<B>(self, answer: &mut Response<B>) {
        answer.headers_mut().entry(HEADER).or_insert(self.0);
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or_default())
    }
}

/// Whether an id cannot be mistaken for anything else on a line of the log.
fn is_well_formed(id: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
    (1..=MAX_LENGTH).contains(&id.len()) && id.iter().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_str(value).unwrap());
        }
        RequestId::of(&headers).to_string()
    }

    #[test]
    fn an_id_is_the_clients_if_it_may_be_logged() {
        for id in ["a", "01JCX2-3.4_5:6/7+8=9@x", &"x".repeat(MAX_LENGTH)] {
            assert_eq!(of(&[id]), *id);
        }
        for strange in ["", "two words", "a\tb", "q\"uote", "ü", &"x".repeat(MAX_LENGTH + 1)] {
            assert!(Uuid::parse_str(&of(&[strange])).is_ok(), "{strange:?}");
        }
        assert!(Uuid::parse_str(&of(&["a", "b"])).is_ok(), "more than one");
        assert_ne!(of(&[]), of(&[]));
    }

    #[test]
    fn an_answer_gets_the_id_unless_it_has_one() {
        let mut answer = Response::new(());
        RequestId(HeaderValue::from_static("ours")).stamp(&mut answer);
        RequestId(HeaderValue::from_static("other")).stamp(&mut answer);
        assert_eq!(answer.headers()[HEADER], "ours");
    }
}
