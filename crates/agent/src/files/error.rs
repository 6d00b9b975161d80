//! The errors of the files API: a status and a text, as JSON (contract: envd, section 1).

use std::io;

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};
use rustix::io::Errno;
use serde::Serialize;

use crate::rpc;

/// The result of a files handler.
pub(super) type Result<T> = std::result::Result<T, Error>;

/// A refused or failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Error {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl Error {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(super) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    /// Makes an error for a failed operation on a file. A full disk has a status of its own, which clients report to users.
    pub(super) fn io(what: impl std::fmt::Display, error: &io::Error) -> Self {
        if is_out_of_space(error) {
            return Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                format!("not enough disk space: {what}: {error}"),
            );
        }
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{what}: {error}"))
    }
}

/// Whether a write failed because the disk, its inodes or a quota are used up.
pub(super) fn is_out_of_space(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

impl From<rpc::Error> for Error {
    /// Converts an error of looking up an account or path.
    fn from(error: rpc::Error) -> Self {
        Self::new(error.code.status(), error.message)
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body {
            code: u16,
            message: String,
        }
        let body = Body { code: self.status.as_u16(), message: self.message };
        let mut text = serde_json::to_vec(&body).unwrap_or_default();
        text.push(b'\n');
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8")),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        ];
        (self.status, headers, text).into_response()
    }
}
