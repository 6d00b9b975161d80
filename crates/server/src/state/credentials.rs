//! Headers that carry credentials of this server.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sandcove_wire::secret::Secret;

use super::App;

/// Header of an API key.
pub(crate) const API_KEY: &str = "x-api-key";
/// Header of the admin token.
pub(crate) const ADMIN_TOKEN: &str = "x-admin-token";

/// Removes credentials of this server from a request that goes on to a sandbox, whose owner could read them. Values that
/// are no credentials here belong to the service in the sandbox, and stay.
pub(crate) async fn withhold(app: &App, headers: &mut HeaderMap) {
    for name in [API_KEY, AUTHORIZATION.as_str(), ADMIN_TOKEN] {
        let mut ours = false;
        for value in headers.get_all(name).iter().filter_map(|value| value.to_str().ok()) {
            let credential =
                if name == AUTHORIZATION.as_str() { value.strip_prefix("Bearer ") } else { Some(value) };
            if let Some(credential) = credential {
                ours = ours || is_credential(app, credential.trim()).await;
            }
        }
        if ours {
            headers.remove(name);
        }
    }
}

async fn is_credential(app: &App, text: &str) -> bool {
    let config = app.config();
    let is = |secret: &Option<Secret>| secret.as_ref().is_some_and(|secret| secret.matches(text));
    // When the store fails, the value might be a credential, and is removed.
    is(&config.access_token)
        || is(&config.admin_token)
        || app.store().is_credential(text).await.unwrap_or(true)
}
