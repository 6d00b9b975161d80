//! The endpoints for the host, on its own socket only (contract: envd, section 7).

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::StatusCode;
use http::header::CACHE_CONTROL;
use sandcove_wire::boot::{ENVD_VERSION, Settings};
use serde::Deserialize;

use super::pipeline::json_error;
use crate::state::SharedState;

/// The bundle of certificates that programs trust.
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Path at which the certificate survives a rebuild of the bundle.
const PERSISTED: &str = "/usr/local/share/ca-certificates/e2b-ca.crt";

/// Body of `POST /init`. Fields of the original that have no meaning here are ignored.
#[derive(Debug, Deserialize)]
struct Init {
    #[serde(flatten)]
    settings: Settings,
    #[serde(rename = "caBundle")]
    ca_bundle: Option<String>,
}

/// The router of the control socket.
pub(super) fn router(state: SharedState) -> Router {
    Router::new().route("/init", post(init)).with_state(state)
}

async fn init(State(state): State<SharedState>, body: Bytes) -> Response {
    let init: Init = match serde_json::from_slice(if body.is_empty() { b"{}" } else { &body }) {
        Ok(init) => init,
        // The text of the error would quote the body, and perhaps the token in it.
        Err(error) => {
            let place = format!("invalid settings at line {}, column {}", error.line(), error.column());
            return json_error(StatusCode::BAD_REQUEST, &place);
        }
    };
    if init.settings.access_token.as_ref().is_some_and(|token| token.expose().is_empty()) {
        return json_error(StatusCode::BAD_REQUEST, "the access token is empty");
    }
    if let Some(bundle) = init.ca_bundle.filter(|bundle| !bundle.is_empty())
        && let Err(error) = trust(Path::new(BUNDLE), Path::new(PERSISTED), &bundle)
    {
        return json_error(StatusCode::BAD_REQUEST, &format!("failed to install the certificates: {error}"));
    }
    state.apply(init.settings);
    (StatusCode::NO_CONTENT, [("x-envd-version", ENVD_VERSION)], [(CACHE_CONTROL, "no-store")])
        .into_response()
}

/// Makes `certificates` trusted, and replaces those of an earlier call.
fn trust(bundle: &Path, persisted: &Path, certificates: &str) -> io::Result<()> {
    let read = |path| match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other,
    };
    let ours = format!("{}\n", certificates.trim_end());
    let previous = read(persisted)?;
    let mut all = read(bundle)?;
    if !previous.is_empty() {
        all = all.replace(&previous, "");
    }
    if !all.is_empty() && !all.ends_with('\n') {
        all.push('\n');
    }
    all.push_str(&ours);
    for (path, text) in [(persisted, &ours), (bundle, &all)] {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file = fs::File::create(path)?;
        file.write_all(text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_certificates_take_the_place_of_old_ones() {
        let home = tempfile::tempdir().unwrap();
        let (bundle, persisted) = (home.path().join("a/bundle"), home.path().join("b/ours"));
        fs::create_dir(home.path().join("a")).unwrap();
        fs::write(&bundle, "SYSTEM").unwrap();
        trust(&bundle, &persisted, "ONE").unwrap();
        trust(&bundle, &persisted, "TWO\n").unwrap();
        assert_eq!(fs::read_to_string(&bundle).unwrap(), "SYSTEM\nTWO\n");
        assert_eq!(fs::read_to_string(&persisted).unwrap(), "TWO\n");
    }

    #[test]
    fn settings_come_flat_and_unknown_fields_are_ignored() {
        let body =
            r#"{"envVars":{"A":"1"},"accessToken":"t","caBundle":"PEM","timestamp":"2026-01-01T00:00:00Z"}"#;
        let init: Init = serde_json::from_str(body).unwrap();
        assert_eq!(init.ca_bundle.as_deref(), Some("PEM"));
        assert!(init.settings.access_token.is_some_and(|t| t.matches("t")));
        assert_eq!(init.settings.env_vars.unwrap()["A"], "1");
        assert_eq!(init.settings.default_user, None);
    }
}
