//! `/dashboard/session`: logging in, logging out, and who is logged in.

use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use sandcove_wire::secret::Secret;
use serde::Deserialize;
use serde_json::json;

use super::forward::owner;
use super::guard;
use super::sessions::{Credential, Sessions};
use crate::domain::team::Team;
use crate::sandboxes::Upload;
use crate::state::App;
use crate::{Error, Result};

/// Maximum size of the body, bytes.
const MAX_BODY: usize = 4 << 10;

#[derive(Deserialize)]
struct Login {
    credential: Secret,
}

/// Answers a request to `/dashboard/session`.
pub(super) async fn answer(
    app: &App,
    sessions: &Sessions,
    request: Request<Upload>,
    is_secure: bool,
) -> Result<Response<Body>> {
    let (mut answer, cookie) = match *request.method() {
        Method::GET => {
            let answer = match sessions.find(request.headers(), is_secure) {
                Some(credential) => described(app, &credential, owner(app, &credential).await?),
                // No error: every page asks at its start.
                None => Json(json!(null)).into_response(),
            };
            (answer, None)
        }
        Method::POST => {
            let body = Limited::new(request.into_body(), MAX_BODY).collect().await;
            let body = body.map_err(|_| Error::BodyTooLarge(MAX_BODY))?.to_bytes();
            let Login { credential } = serde_json::from_slice(&body)
                .map_err(|_| Error::Refused("the body has to be {\"credential\": \"<key>\"}".into()))?;
            let (credential, team) = identify(app, &credential).await?;
            let answer = described(app, &credential, team);
            (answer, Some(sessions.begin(credential, is_secure)))
        }
        Method::DELETE => {
            (StatusCode::NO_CONTENT.into_response(), Some(sessions.end(request.headers(), is_secure)))
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED.into_response(), None),
    };
    answer = guard::sealed(answer);
    if let Some(cookie) = cookie.and_then(|cookie| HeaderValue::from_str(&cookie).ok()) {
        answer.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(answer)
}

fn described(app: &App, credential: &Credential, team: Option<Team>) -> Response<Body> {
    let team = team.map(|team| json!({ "teamID": team.id, "name": team.name }));
    let version = env!("CARGO_PKG_VERSION");
    Json(json!({ "kind": credential.kind(), "team": team, "domain": app.domain(), "version": version }))
        .into_response()
}

/// The kind of a credential, by trying.
async fn identify(app: &App, text: &Secret) -> Result<(Credential, Option<Team>)> {
    let text = Secret::new(text.expose().trim());
    let kinds = [Credential::Key as fn(Secret) -> Credential, Credential::Token, Credential::Admin];
    for kind in kinds {
        let credential = kind(text.clone());
        match owner(app, &credential).await {
            Ok(team) => return Ok((credential, team)),
            Err(error @ (Error::TeamBanned | Error::Store(_))) => return Err(error),
            Err(_) => {}
        }
    }
    Err(Error::NoCredentials(
        "a valid API key, access token or admin token; `sandcove keys create NAME` prints a new key",
    ))
}
