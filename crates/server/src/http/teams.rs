//! `GET /teams` (contract: control-plane, section 10).

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use sandcove_wire::api::team::Team;

use super::auth::TeamUser;
use super::{audit, body};
use crate::Result;
use crate::state::App;

/// Lists the user's team. Keys are stored hashed, so the key in the answer is a new one, as in upstream's.
pub(super) async fn list(State(app): State<App>, TeamUser(team): TeamUser) -> Result<Response> {
    let (key, api_key) = app.store().issue_key(&team).await?;
    let listed = Team { team_id: team.id.to_string(), name: team.name, api_key, is_default: team.is_default };
    Ok(audit::created(body::json(StatusCode::OK, &[listed]), key.id))
}
