//! What a client is told when something does not work: the only place that knows statuses of errors.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use sandcove_eval::view::ViewError;
use serde_json::json;

/// Why a request is not answered.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It is for another host.
    Host(String),
    /// It comes from another site.
    Origin,
    /// It brings no token, or a wrong one.
    Token,
    /// It makes no sense.
    Invalid(String),
    /// What is stored does not allow it.
    Stored(ViewError),
}

impl From<ViewError> for Refused {
    fn from(error: ViewError) -> Self {
        Self::Stored(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Host(host) => (
                StatusCode::FORBIDDEN,
                format!(
                    "`{host}` is no name of this machine; use localhost, or start with --host to allow others"
                ),
            ),
            Self::Origin => (StatusCode::FORBIDDEN, "the request comes from another site".to_owned()),
            Self::Token => (
                StatusCode::UNAUTHORIZED,
                "the token is missing or wrong; open the address that `sandcove view` printed".to_owned(),
            ),
            Self::Invalid(text) => (StatusCode::BAD_REQUEST, text),
            Self::Stored(error) => {
                let status = match &error {
                    ViewError::NoRun(_) | ViewError::NoRow { .. } => StatusCode::NOT_FOUND,
                    ViewError::Invalid(_) => StatusCode::BAD_REQUEST,
                    ViewError::Unavailable(_) | ViewError::Database(_) => {
                        tracing::warn!(%error, "a request failed");
                        StatusCode::INTERNAL_SERVER_ERROR
                    }
                };
                (status, error.to_string())
            }
        };
        (status, Json(json!({"error": text}))).into_response()
    }
}

/// The answer to a path that is none of ours.
pub(crate) async fn no_route() -> Response {
    (StatusCode::NOT_FOUND, Json(json!({"error": "there is no such path"}))).into_response()
}
