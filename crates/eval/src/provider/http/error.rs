//! Why a service gave no answer.

use crate::calling::CallError;
use crate::javascript::JavaScriptError;
use crate::script::ScriptError;
use crate::template::TemplateError;

/// Reason why a service gave no answer, or one that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error(transparent)]
    JavaScript(#[from] JavaScriptError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("`{url}`: {reason}")]
    Url { url: String, reason: String },
    #[error("failed to read `{path}`: {error}")]
    Read { path: String, error: std::io::Error },
    #[error("`request` must begin with a line like `POST /path HTTP/1.1`")]
    RequestLine,
    #[error("HTTP call failed with status {status}: {start}")]
    Status { status: u16, start: String },
    #[error("`transformRequest` failed: {0}")]
    RequestTransform(JavaScriptError),
    #[error("`sessionParser` failed: {0}")]
    Session(JavaScriptError),
    #[error("`transformResponse` failed: {0}")]
    Transform(JavaScriptError),
    #[error("`transformResponse` gave nothing for: {0}")]
    Nothing(String),
    /// The answer that `transformResponse` gave has a key of the wrong type.
    #[error(transparent)]
    Shape(serde_json::Error),
    #[error("`tls`: {0}")]
    Tls(std::sync::Arc<super::tls::TlsError>),
    #[error("the token request to {url} failed: {reason}")]
    Token { url: String, reason: String },
    #[error("`auth`: `{path}` must return an object with a text `token`, not {value}")]
    NoToken { path: String, value: String },
    #[error("`signatureAuth`: {0}")]
    Signature(#[from] super::signature::SignatureError),
    #[error("the session endpoint answered with status {status}: {start}")]
    SessionStatus { status: u16, start: String },
    #[error("the session endpoint gave no session: {0}")]
    NoSession(String),
}
