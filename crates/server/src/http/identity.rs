//! Public keys for tokens of sandboxes, and where they are (OpenID Connect Discovery). Anybody may read them.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use super::body;
use crate::Result;
use crate::state::App;

/// Path of the public keys.
pub(super) const KEYS: &str = "/.well-known/jwks.json";

/// URL of this server, as tokens have it.
pub(super) fn issuer(app: &App) -> String {
    let (domain, config) = (app.domain().unwrap_or_default(), app.config());
    let prefix = config.api_prefix.as_deref().unwrap_or_default().trim_end_matches('/');
    match (&config.tls, &config.domain) {
        (Some(_), Some(_)) => format!("https://api.{domain}{prefix}"),
        (None, Some(_)) => format!("http://api.{domain}{prefix}"),
        (_, None) => format!("http://{domain}{prefix}"),
    }
}

pub(super) async fn keys(State(app): State<App>) -> Result<Response> {
    let keys = app.secrets().identity_keys().await?;
    Ok(body::json(StatusCode::OK, &json!({ "keys": keys })))
}

pub(super) async fn configuration(State(app): State<App>) -> Response {
    let issuer = issuer(&app);
    let configuration = json!({
        "issuer": issuer,
        "jwks_uri": format!("{issuer}{KEYS}"),
        "id_token_signing_alg_values_supported": ["ES256"],
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
    });
    body::json(StatusCode::OK, &configuration)
}
