//! `GET /teams` (contract: control-plane, section 10).

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use sandcove_wire::api::team::Team;

use super::auth::Person;
use super::body;
use crate::app::App;
use crate::{Result, random};

/// Keys are stored hashed, so the one in the answer is new, as upstream's is.
pub(super) async fn list(State(app): State<App>, Person(team): Person) -> Result<Response> {
    let api_key = random::api_key();
    app.store().add_key(&team, "issued with the list of teams", &api_key).await?;
    let listed = Team { team_id: team.id.to_string(), name: team.name, api_key, is_default: team.is_default };
    Ok(body::json(StatusCode::OK, &[listed]))
}
