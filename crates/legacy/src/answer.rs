//! Answers over HTTP.

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE,
};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use sandcove_client::Error;
use serde_json::{Value, json};

/// The error of a body.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer.
pub type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

/// The body of a request.
pub trait RequestBody: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static {}

impl<B> RequestBody for B where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static
{
}

/// A request that is not carried out.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

impl Refused {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// The answer as text.
    pub(crate) fn text(self) -> Response<Body> {
        text(self.status, self.message)
    }

    /// The answer as the kernel gateway words errors.
    pub(crate) fn json(self) -> Response<Body> {
        json(self.status, &json!({ "message": self.message, "reason": null }))
    }
}

impl From<&Error> for Refused {
    /// The error of the agent or interpreter.
    fn from(error: &Error) -> Self {
        let status = error.status().and_then(|status| StatusCode::from_u16(status).ok());
        Self::new(status.unwrap_or(StatusCode::BAD_GATEWAY), error.to_string())
    }
}

/// An answer with a text.
pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    with(status, HeaderValue::from_static("text/plain; charset=utf-8"), text.into())
}

/// An answer with JSON.
pub(crate) fn json(status: StatusCode, value: &Value) -> Response<Body> {
    with(status, HeaderValue::from_static("application/json"), value.to_string())
}

/// An answer without a body.
pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut answer = Response::new(Body::default());
    *answer.status_mut() = status;
    answer
}

/// Lets scripts of any origin read the answer, as they may read those of the agent.
pub(crate) fn open_to_browsers(mut answer: Response<Body>) -> Response<Body> {
    let any = HeaderValue::from_static("*");
    answer.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, any.clone());
    answer.headers_mut().insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PUT"));
    answer.headers_mut().insert(ACCESS_CONTROL_ALLOW_HEADERS, any);
    answer
}

fn with(status: StatusCode, kind: HeaderValue, body: String) -> Response<Body> {
    let mut answer = Response::new(Full::from(body).map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
