//! Calls for secrets (contract: control-plane, section 12).

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use sandcove_wire::api::error::ErrorBody;
use sandcove_wire::api::secret::{NewSecret, SecretInfo, SecretUpdate};

use super::audit;
use super::auth::{Caller, Reader};
use super::body::{self, Required};
use super::paging::{PageRequest, Position};
use super::params::{Path, Query};
use crate::Result;
use crate::domain::secret::SecretRecord;
use crate::state::App;

pub(super) async fn list(State(app): State<App>, Reader(team): Reader, query: Query) -> Result<Response> {
    let page = PageRequest::from_query(&query)?;
    let secrets = app.secrets().list(&team).await?;
    let page = page.cut(secrets, |secret| Position { time: secret.created_at, id: secret.id.clone() });
    let rows: Vec<_> = page.rows.into_iter().map(info).collect();
    let mut answer = body::json(StatusCode::OK, &rows);
    if let Some(next) = page.next {
        answer.headers_mut().insert("x-next-token", next);
    }
    Ok(answer)
}

pub(super) async fn create(
    State(app): State<App>,
    Caller(team): Caller,
    Required(new): Required<NewSecret>,
) -> Result<Response> {
    let secret = app.secrets().create(&team, new).await?;
    let id = secret.id.clone();
    Ok(audit::created(body::json(StatusCode::CREATED, &info(secret)), id))
}

pub(super) async fn detail(
    State(app): State<App>,
    Reader(team): Reader,
    Path(reference): Path<String>,
) -> Result<Response> {
    Ok(body::json(StatusCode::OK, &info(app.secrets().get(&team, &reference).await?)))
}

pub(super) async fn update(
    State(app): State<App>,
    Caller(team): Caller,
    Path(reference): Path<String>,
    Required(update): Required<SecretUpdate>,
) -> Result<Response> {
    let secret = app.secrets().update(&team, &reference, update).await?;
    app.sandboxes().renew_secret(&team, &secret.name).await;
    Ok(body::json(StatusCode::OK, &info(secret)))
}

pub(super) async fn delete(
    State(app): State<App>,
    Reader(team): Reader,
    Path(reference): Path<String>,
) -> Result<StatusCode> {
    let secret = app.secrets().get(&team, &reference).await?;
    app.secrets().delete(&team, &secret.id).await?;
    app.sandboxes().renew_secret(&team, &secret.name).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Has no answer of these calls cached, and says no more about failures than the contract does: an error might quote what a client sent.
pub(super) async fn guard_answers(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_mine = path == "/secrets" || path.starts_with("/secrets/");
    let mut answer = next.run(request).await;
    if !is_mine {
        return answer;
    }
    let fixed = match answer.status() {
        StatusCode::BAD_REQUEST => Some("Invalid secrets request"),
        StatusCode::UNAUTHORIZED => Some("You are not authenticated"),
        StatusCode::FORBIDDEN => Some("Secrets are not available for this team"),
        StatusCode::INTERNAL_SERVER_ERROR => Some("Secrets backend error"),
        StatusCode::GATEWAY_TIMEOUT => Some("Secrets backend timed out"),
        _ => None,
    };
    if let Some(message) = fixed {
        let status = match answer.status() {
            StatusCode::INTERNAL_SERVER_ERROR => StatusCode::BAD_GATEWAY,
            status => status,
        };
        let error = ErrorBody { code: status.as_u16(), message: message.to_owned(), error_code: None };
        let fixed = body::json(status, &error);
        *answer.status_mut() = status;
        *answer.body_mut() = fixed.into_body();
    }
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

fn info(secret: SecretRecord) -> SecretInfo {
    SecretInfo {
        secret_id: secret.id,
        name: secret.name,
        current_version: secret.version,
        metadata: secret.metadata,
        created_at: secret.created_at,
        updated_at: secret.updated_at,
    }
}
