//! Calls for volumes (contract: control-plane, section 11).

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use sandcove_wire::api::team::Named;
use sandcove_wire::api::volume as wire;
use sandcove_wire::secret::Secret;

use super::audit;
use super::auth::{Caller, Reader};
use super::body::{self, Required};
use super::params::Id;
use crate::Result;
use crate::domain::volume::Volume;
use crate::state::App;

pub(super) async fn list(State(app): State<App>, Reader(team): Reader) -> Result<Response> {
    let volumes = app.volumes().list(&team).await?;
    let listed = volumes.into_iter().map(|v| wire::Volume { volume_id: v.id.to_string(), name: v.name });
    Ok(body::json(StatusCode::OK, &listed.collect::<Vec<_>>()))
}

pub(super) async fn create(
    State(app): State<App>,
    Caller(team): Caller,
    Required(body): Required<Named>,
) -> Result<Response> {
    let volume = app.volumes().create(&team, &body.name).await?;
    let id = volume.id;
    Ok(audit::created(body::json(StatusCode::CREATED, &with_token(&app, volume)), id))
}

pub(super) async fn detail(State(app): State<App>, Reader(team): Reader, Id(id): Id) -> Result<Response> {
    let volume = app.volumes().get(&team, id).await?;
    Ok(body::json(StatusCode::OK, &with_token(&app, volume)))
}

pub(super) async fn delete(State(app): State<App>, Reader(team): Reader, Id(id): Id) -> Result<StatusCode> {
    app.volumes().delete(&team, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn with_token(app: &App, volume: Volume) -> wire::VolumeAndToken {
    let token = Secret::new(app.volumes().token(&volume));
    wire::VolumeAndToken { volume_id: volume.id.to_string(), name: volume.name, token, domain: None }
}
