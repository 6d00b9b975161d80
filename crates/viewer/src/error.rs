//! Errors as clients see them, and the only place that knows their statuses.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use sandcove_eval::view::ViewError;
use serde_json::json;

use crate::running::StartError;

/// Reason why a request is refused.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The request is for another host.
    Host(String),
    /// The request comes from another origin.
    Origin,
    /// The request has no valid token.
    Token,
    /// The server sets up no red teams.
    NoSetup,
    /// The server runs nothing.
    NoRuns,
    /// The request is malformed.
    Invalid(String),
    /// The runs could not be read or changed.
    Stored(ViewError),
}

impl From<ViewError> for Refused {
    fn from(error: ViewError) -> Self {
        Self::Stored(error)
    }
}

impl From<StartError> for Refused {
    fn from(error: StartError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Host(host) => (
                StatusCode::FORBIDDEN,
                format!("unknown host `{host}`; use localhost, or start with --host to allow others"),
            ),
            Self::Origin => (StatusCode::FORBIDDEN, "the request comes from another site".to_owned()),
            Self::Token => (
                StatusCode::UNAUTHORIZED,
                "the token is missing or wrong; open the address that `sandcove view` printed".to_owned(),
            ),
            Self::NoSetup => {
                (StatusCode::NOT_FOUND, "start `sandcove redteam setup` to set up a red team".to_owned())
            }
            Self::NoRuns => {
                (StatusCode::NOT_FOUND, "start `sandcove view --run` to run stored runs again".to_owned())
            }
            Self::Invalid(text) => (StatusCode::BAD_REQUEST, text),
            Self::Stored(error) => {
                let status = match &error {
                    ViewError::NoRun(_) | ViewError::NoRow { .. } | ViewError::NoRedTeam(_) => {
                        StatusCode::NOT_FOUND
                    }
                    ViewError::Invalid(_) => StatusCode::BAD_REQUEST,
                    ViewError::Unavailable(_)
                    | ViewError::Database(_)
                    | ViewError::DamagedRow { .. }
                    | ViewError::Stopped => {
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

/// Answers a path that has no route.
pub(crate) async fn no_route() -> Response {
    (StatusCode::NOT_FOUND, Json(json!({"error": "unknown path"}))).into_response()
}
