//! The one place where errors become HTTP statuses (contract: interpreter, section 1).

use std::error::Error;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::contexts::ContextError;
use crate::kernel::StartError;

/// An error answer.
#[derive(Debug)]
pub(super) enum HttpError {
    /// The path is unknown.
    NotFound,
    /// The path does not take this method.
    MethodNotAllowed,
    /// The body is invalid, with a list of faults.
    Invalid(Vec<Value>),
    /// The request about contexts failed.
    Context(ContextError),
}

impl From<ContextError> for HttpError {
    fn from(error: ContextError) -> Self {
        Self::Context(error)
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let detail =
            |status: StatusCode, detail: Value| (status, Json(json!({ "detail": detail }))).into_response();
        match self {
            Self::NotFound => detail(StatusCode::NOT_FOUND, json!("Not Found")),
            Self::MethodNotAllowed => detail(StatusCode::METHOD_NOT_ALLOWED, json!("Method Not Allowed")),
            Self::Invalid(faults) => detail(StatusCode::UNPROCESSABLE_ENTITY, Value::Array(faults)),
            Self::Context(error) => {
                let (status, text) = match &error {
                    ContextError::Unknown(id) => (StatusCode::NOT_FOUND, format!("Context {id} not found")),
                    ContextError::ContextAndLanguage => (
                        StatusCode::BAD_REQUEST,
                        "Only one of context_id or language can be provided".to_owned(),
                    ),
                    ContextError::Start(cause) => (start_status(cause), start_failure(cause)),
                };
                (status, text).into_response()
            }
        }
    }
}

/// The status of a failed start: an unknown language is the client's mistake, a kernel that does not start is not.
fn start_status(error: &StartError) -> StatusCode {
    match error {
        StartError::NoSuchKernel { .. } => StatusCode::BAD_REQUEST,
        StartError::BeingBuilt { .. } => StatusCode::SERVICE_UNAVAILABLE,
        StartError::Spawn { .. } | StartError::Descriptors(_) | StartError::Ended(_) | StartError::Late => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

/// The error with all its causes. What runs here belongs to the client, so it may see why it does not run.
fn start_failure(error: &dyn Error) -> String {
    let mut text = format!("Failed to create context: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
