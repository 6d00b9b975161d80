//! The endpoints for the host, on its own socket only (contract: envd, section 7).

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::StatusCode;
use http::header::CACHE_CONTROL;
use sandcove_wire::boot::{Assignment, ENVD_VERSION, Renewal, Settings};

use super::pipeline::json_error;
use crate::state::{Identity, SharedState};
use crate::{facts, trust};

/// The router of the control socket.
pub(super) fn router(state: SharedState) -> Router {
    Router::new().route("/init", post(init)).route("/renew", post(renew)).with_state(state)
}

/// Makes this the agent of another sandbox than the one whose memory it has.
async fn renew(State(state): State<SharedState>, body: Bytes) -> Response {
    let renewal: Renewal = match serde_json::from_slice(&body) {
        Ok(renewal) => renewal,
        Err(error) => return malformed("identity", &error),
    };
    let Renewal { template_id, assignment: Assignment { sandbox_id, settings } } = renewal;
    if let Some(refusal) = install(settings.ca_bundle.as_deref()) {
        return refusal;
    }
    let identity = Identity { sandbox_id: sandbox_id.into(), template_id };
    // Programs that look at these files take new variables and random numbers from then on.
    state.renew(identity.clone(), settings);
    facts::write_identity(&identity.sandbox_id, &identity.template_id);
    done()
}

async fn init(State(state): State<SharedState>, body: Bytes) -> Response {
    // Fields of the original that have no meaning here are ignored.
    let settings: Settings = match serde_json::from_slice(if body.is_empty() { b"{}" } else { &body }) {
        Ok(settings) => settings,
        Err(error) => return malformed("settings", &error),
    };
    if settings.access_token.as_ref().is_some_and(|token| token.expose().is_empty()) {
        return json_error(StatusCode::BAD_REQUEST, "the access token is empty");
    }
    if let Some(refusal) = install(settings.ca_bundle.as_deref()) {
        return refusal;
    }
    state.apply(settings);
    done()
}

/// Has programs trust certificates, if there are any; the answer when this fails.
fn install(certificates: Option<&str>) -> Option<Response> {
    let certificates = certificates.filter(|text| !text.is_empty())?;
    let error = trust::install(certificates).err()?;
    Some(json_error(StatusCode::BAD_REQUEST, &format!("failed to install the certificates: {error}")))
}

/// Says where a body is malformed. The text of the error would quote it, and perhaps the token in it.
fn malformed(what: &str, error: &serde_json::Error) -> Response {
    let place = format!("invalid {what} at line {}, column {}", error.line(), error.column());
    json_error(StatusCode::BAD_REQUEST, &place)
}

fn done() -> Response {
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
