//! The endpoints for the host, on its own socket only (contract: envd, section 7).

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::StatusCode;
use http::header::CACHE_CONTROL;
use sandcove_wire::boot::{ENVD_VERSION, Settings};

use super::pipeline::json_error;
use crate::state::SharedState;
use crate::trust;

/// The router of the control socket.
pub(super) fn router(state: SharedState) -> Router {
    Router::new().route("/init", post(init)).with_state(state)
}

async fn init(State(state): State<SharedState>, body: Bytes) -> Response {
    // Fields of the original that have no meaning here are ignored.
    let settings: Settings = match serde_json::from_slice(if body.is_empty() { b"{}" } else { &body }) {
        Ok(settings) => settings,
        // The text of the error would quote the body, and perhaps the token in it.
        Err(error) => {
            let place = format!("invalid settings at line {}, column {}", error.line(), error.column());
            return json_error(StatusCode::BAD_REQUEST, &place);
        }
    };
    if settings.access_token.as_ref().is_some_and(|token| token.expose().is_empty()) {
        return json_error(StatusCode::BAD_REQUEST, "the access token is empty");
    }
    if let Some(certificates) = settings.ca_bundle.as_ref().filter(|text| !text.is_empty())
        && let Err(error) = trust::install(certificates)
    {
        return json_error(StatusCode::BAD_REQUEST, &format!("failed to install the certificates: {error}"));
    }
    state.apply(settings);
    (StatusCode::NO_CONTENT, [("x-envd-version", ENVD_VERSION)], [(CACHE_CONTROL, "no-store")])
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_flat_and_unknown_fields_are_ignored() {
        let body =
            r#"{"envVars":{"A":"1"},"accessToken":"t","caBundle":"PEM","timestamp":"2026-01-01T00:00:00Z"}"#;
        let settings: Settings = serde_json::from_str(body).unwrap();
        assert_eq!(settings.ca_bundle.as_deref(), Some("PEM"));
        assert!(settings.access_token.is_some_and(|t| t.matches("t")));
        assert_eq!(settings.env_vars.unwrap()["A"], "1");
        assert_eq!(settings.default_user, None);
    }
}
