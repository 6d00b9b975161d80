//! The forms of answers: JSON, or a stream of events that shows progress and can be resumed.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use sandcove_mcp::{CANCELLED, Event, INVALID_REQUEST, Reader, failure};
use serde_json::Value;

use crate::proxy::body::Answer;

/// Time after which a silent stream gets a comment, so that nobody on its way takes it for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The forms that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) json: bool,
    pub(super) events: bool,
}

impl Accepted {
    /// Reads the `Accept` header; `None` if the client accepts neither form. Without the header it accepts JSON.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let values: Vec<&str> =
            headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        if values.is_empty() {
            return Some(Self { json: true, events: false });
        }
        let kinds = values.iter().flat_map(|value| value.split(','));
        let kinds: Vec<String> = kinds
            .map(|kind| kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
            .collect();
        let has = |names: &[&str]| kinds.iter().any(|kind| names.contains(&kind.as_str()));
        let accepted = Self {
            json: has(&["application/json", "application/*", "*/*"]),
            events: has(&["text/event-stream", "text/*"]),
        };
        (accepted.json || accepted.events).then_some(accepted)
    }

    /// The answer to a request. Calls, which take long, are answered by events where the client accepts them.
    pub(super) async fn answer(self, mut reader: Reader, is_call: bool, id: &Value) -> Response<Answer> {
        if self.events && (is_call || !self.json) {
            return events(reader);
        }
        let mut last = None;
        while let Some(Event { message, .. }) = reader.next().await {
            last = Some(message);
        }
        // Reports of progress have no id.
        let answer = last.filter(|message| message.get("id").is_some());
        let cancelled = || failure(id, CANCELLED, "the request was cancelled");
        json(StatusCode::OK, &answer.unwrap_or_else(cancelled))
    }

    /// An answer that is there already.
    pub(super) fn whole(self, message: &Value) -> Response<Answer> {
        if self.json {
            return json(StatusCode::OK, message);
        }
        typed(StatusCode::OK, "text/event-stream", Body::from(frame(None, message))).map(Answer::Api)
    }
}

/// A stream of events.
pub(super) fn events(reader: Reader) -> Response<Answer> {
    let frames = stream::unfold(reader, |mut reader| async move {
        let frame = match tokio::time::timeout(KEEP_ALIVE, reader.next()).await {
            Ok(Some(Event { id, message })) => frame(Some(&id), &message),
            Ok(None) => return None,
            Err(_) => ": waiting\n\n".to_owned(),
        };
        Some((Ok::<_, Infallible>(frame), reader))
    });
    typed(StatusCode::OK, "text/event-stream", Body::from_stream(frames)).map(Answer::Stream)
}

/// A message as JSON.
pub(super) fn json(status: StatusCode, message: &Value) -> Response<Answer> {
    typed(status, "application/json", Body::from(message.to_string())).map(Answer::Api)
}

/// The refusal of a request. It is a message too, whose reason clients show to their users.
pub(super) fn refusal(status: StatusCode, reason: &str) -> Response<Answer> {
    json(status, &failure(&Value::Null, INVALID_REQUEST, reason))
}

fn frame(id: Option<&str>, message: &Value) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    // JSON of this form has no line breaks.
    format!("event: message\n{id}data: {message}\n\n")
}

fn typed(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies pass each event on at once.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(values: &[&str]) -> Option<(bool, bool)> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::ACCEPT, HeaderValue::from_str(value).unwrap());
        }
        Accepted::of(&headers).map(|accepted| (accepted.json, accepted.events))
    }

    #[test]
    fn the_form_is_one_that_the_client_accepts() {
        assert_eq!(accepted(&[]), Some((true, false)));
        assert_eq!(accepted(&["*/*"]), Some((true, false)));
        assert_eq!(accepted(&["application/json, text/event-stream"]), Some((true, true)));
        assert_eq!(accepted(&["application/json;q=0.5", "Text/Event-Stream"]), Some((true, true)));
        assert_eq!(accepted(&["text/event-stream"]), Some((false, true)));
        assert_eq!(accepted(&["text/html"]), None);
    }

    #[test]
    fn an_event_is_one_line_whatever_it_says() {
        let message = serde_json::json!({ "text": "a\nb\r\n\nc" });
        assert_eq!(
            frame(Some("1-2"), &message),
            "event: message\nid: 1-2\ndata: {\"text\":\"a\\nb\\r\\n\\nc\"}\n\n"
        );
    }
}
