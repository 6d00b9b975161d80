//! API keys and access tokens of a team (contract: control-plane, section 10).

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use sandcove_wire::api::team as wire;

use super::audit;
use super::auth::{Manager, TeamUser, may_act};
use super::body::{self, Required};
use super::params::Id;
use crate::domain::team::Team;
use crate::state::App;
use crate::store::ApiKey;
use crate::{Error, Result};

/// Maximum length of a name, characters.
const MAX_NAME: usize = 256;

pub(super) async fn list(State(app): State<App>, Manager(team): Manager) -> Result<Response> {
    let keys = app.store().keys(&team).await?;
    Ok(body::json(StatusCode::OK, &keys.into_iter().map(listed).collect::<Vec<_>>()))
}

pub(super) async fn create(
    State(app): State<App>,
    Manager(team): Manager,
    Required(body): Required<wire::Named>,
) -> Result<Response> {
    let team = may_act(team)?;
    created(&app, &team, &body).await
}

/// Creates a key and shows it.
pub(super) async fn created(app: &App, team: &Team, body: &wire::Named) -> Result<Response> {
    let (key, secret) = app.store().create_key(team, name(body)?).await?;
    let id = key.id;
    let answer = body::json(StatusCode::CREATED, &wire::NewApiKey { listed: listed(key), key: secret });
    Ok(audit::created(answer, id))
}

pub(super) async fn rename(
    State(app): State<App>,
    Manager(team): Manager,
    Id(id): Id,
    Required(body): Required<wire::Named>,
) -> Result<StatusCode> {
    let team = may_act(team)?;
    match app.store().rename_key(&team, id, name(&body)?).await? {
        true => Ok(StatusCode::ACCEPTED),
        false => Err(Error::IdNotFound),
    }
}

pub(super) async fn delete(State(app): State<App>, Manager(team): Manager, Id(id): Id) -> Result<StatusCode> {
    match app.store().delete_key(&team, id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Error::IdNotFound),
    }
}

pub(super) async fn create_token(
    State(app): State<App>,
    TeamUser(team): TeamUser,
    Required(body): Required<wire::Named>,
) -> Result<Response> {
    let team = may_act(team)?;
    let (token, secret) = app.store().create_token(&team, name(&body)?).await?;
    let new = wire::NewAccessToken {
        id: token.id.to_string(),
        name: token.name,
        token: secret,
        mask: token.mask,
        created_at: token.created_at,
    };
    Ok(audit::created(body::json(StatusCode::CREATED, &new), token.id))
}

pub(super) async fn delete_token(
    State(app): State<App>,
    TeamUser(team): TeamUser,
    Id(id): Id,
) -> Result<StatusCode> {
    match app.store().delete_token(&team, id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Error::IdNotFound),
    }
}

fn name(body: &wire::Named) -> Result<&str> {
    let name = body.name.trim();
    if name.is_empty() || name.chars().count() > MAX_NAME {
        return Err(Error::InvalidRequest(format!("property \"name\" must have 1 to {MAX_NAME} characters")));
    }
    Ok(name)
}

fn listed(key: ApiKey) -> wire::ApiKey {
    wire::ApiKey {
        id: key.id.to_string(),
        name: key.name,
        mask: key.mask,
        created_at: key.created_at,
        created_by: None,
        last_used: key.last_used_at,
    }
}
