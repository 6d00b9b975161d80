//! Authentication of API requests (contract: control-plane, section 2). Schemes are tried in order and one valid credential
//! is enough; when none is valid, the error of the first scheme is the answer.

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;
use sandcove_wire::api::audit::AuditCredential;
use uuid::Uuid;

use super::audit::{self, Actor};
use super::measure;
use crate::domain::team::{Standing, Team};
use crate::memory::Memory;
use crate::state::App;
use crate::state::credentials::{ADMIN_TOKEN, API_KEY};
use crate::{Error, Result};

const KEYS_PAGE: &str = "https://e2b.dev/docs/api-key";
const LOGIN_COMMAND: &str = "'e2b auth login'";

/// A team that may change things.
pub(super) struct Caller(pub(super) Team);

/// A team that may read and clean up, blocked or not.
pub(super) struct Reader(pub(super) Team);

/// A user of a team, authenticated by an access token; no API key is needed.
pub(super) struct TeamUser(pub(super) Team);

/// A manager of a team's keys: a user of the team, or an operator. API keys cannot create API keys.
pub(super) struct Manager(pub(super) Team);

/// An operator, who acts for no team.
pub(super) struct Operator;

/// A collector of metrics: an operator, whose token may also come as Prometheus sends it.
pub(super) struct Scraper;

impl FromRequestParts<App> for Caller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let Reader(team) = Reader::from_request_parts(parts, app).await?;
        may_act(team).map(Self)
    }
}

impl FromRequestParts<App> for Reader {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let identity = authenticate(app, &parts.headers).await?;
        admit(app, identity, parts).await.map(Self)
    }
}

impl FromRequestParts<App> for TeamUser {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let token =
            bearer(&parts.headers).ok_or(Error::NoCredentials("an access token as a bearer token"))?;
        let identity = by_access_token(app, token, &parts.headers).await?;
        admit(app, identity, parts).await.map(Self)
    }
}

impl FromRequestParts<App> for Manager {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let headers = &parts.headers;
        let identity = match (bearer(headers), text(headers, ADMIN_TOKEN)) {
            (Some(bearer), None) => by_access_token(app, bearer, headers).await?,
            (None, Some(admin)) => by_admin_token(app, admin, headers).await?,
            (Some(bearer), Some(admin)) => match by_access_token(app, bearer, headers).await {
                Ok(identity) => identity,
                Err(first) => by_admin_token(app, admin, headers).await.map_err(|_| first)?,
            },
            (None, None) => {
                let wanted = "an access token as a bearer token, or the admin token in X-Admin-Token";
                return Err(Error::NoCredentials(wanted));
            }
        };
        admit(app, identity, parts).await.map(Self)
    }
}

impl FromRequestParts<App> for Operator {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        operator_of(app, &parts.headers)?;
        audit::note(parts, Actor { credential: AuditCredential::AdminToken, key: None, team: None });
        Ok(Self)
    }
}

impl FromRequestParts<App> for Scraper {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let token = text(&parts.headers, ADMIN_TOKEN).or_else(|| bearer(&parts.headers));
        let wanted = "the admin token in X-Admin-Token or as a bearer token";
        check_admin_token(app, token.ok_or(Error::NoCredentials(wanted))?).map(|()| Self)
    }
}

/// The team whose credential is in `headers`, as for a call that reads.
pub(crate) async fn team_of(app: &App, headers: &HeaderMap) -> Result<Team> {
    let Identity { team, .. } = authenticate(app, headers).await?;
    match team.standing {
        Standing::Banned => Err(Error::TeamBanned),
        Standing::Good | Standing::Blocked(_) => Ok(team),
    }
}

/// Fails unless the admin token is in `headers`.
pub(crate) fn operator_of(app: &App, headers: &HeaderMap) -> Result<()> {
    let token = text(headers, ADMIN_TOKEN);
    check_admin_token(app, token.ok_or(Error::NoCredentials("the admin token in X-Admin-Token"))?)
}

/// The team, if it may change things.
pub(super) fn may_act(team: Team) -> Result<Team> {
    match team.standing {
        Standing::Blocked(reason) => Err(Error::TeamBlocked(reason)),
        // A banned team has been refused by `admit`.
        Standing::Good | Standing::Banned => Ok(team),
    }
}

/// A team, and who acts for it.
struct Identity {
    team: Team,
    credential: AuditCredential,
    key: Option<Uuid>,
}

/// Refuses a banned team, and one that is over its rate limit; waits for the team's turn.
async fn admit(app: &App, identity: Identity, parts: &Parts) -> Result<Team> {
    let Identity { team, credential, key } = identity;
    audit::note(parts, Actor { credential, key, team: Some(team.id) });
    if let Some(memory) = parts.extensions.get::<Memory>() {
        memory.belongs_to(team.id);
    }
    match team.standing {
        Standing::Banned => Err(Error::TeamBanned),
        Standing::Good | Standing::Blocked(_) => {
            tracing::Span::current().record("team_id", tracing::field::display(team.id));
            measure::limit(app, team.id, parts)?;
            measure::wait_for_turn(app, team.id, parts).await;
            Ok(team)
        }
    }
}

async fn authenticate(app: &App, headers: &HeaderMap) -> Result<Identity> {
    let mut first_error = None;
    if let Some(key) = text(headers, API_KEY) {
        match by_api_key(app, key).await {
            Ok(identity) => return Ok(identity),
            Err(error) => first_error = Some(error),
        }
    }
    if let Some(token) = bearer(headers) {
        match by_access_token(app, token, headers).await {
            Ok(identity) => return Ok(identity),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    if let Some(token) = text(headers, ADMIN_TOKEN) {
        match by_admin_token(app, token, headers).await {
            Ok(identity) => return Ok(identity),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or(Error::NoCredentials("an API key in X-API-Key")))
}

async fn by_api_key(app: &App, key: &str) -> Result<Identity> {
    match app.store().team_of_key(key).await? {
        Some((team, id)) => Ok(Identity { team, credential: AuditCredential::ApiKey, key: Some(id) }),
        None if !key.starts_with("e2b_") => Err(Error::MalformedCredential("Invalid API key format")),
        None => Err(Error::UnknownApiKey(KEYS_PAGE)),
    }
}

async fn by_access_token(app: &App, token: &str, headers: &HeaderMap) -> Result<Identity> {
    let team = match &app.config().access_token {
        Some(expected) if expected.matches(token) => Some(app.store().default_team().await?),
        _ => app.store().team_of_token(token).await?,
    };
    let Some(team) = team else {
        return Err(match token.starts_with("sk_e2b_") {
            true => Error::UnknownAccessToken(LOGIN_COMMAND),
            false => Error::MalformedCredential("authorization header is malformed"),
        });
    };
    match named_team(headers).transpose()? {
        // Another team is answered like a team that does not exist.
        Some(id) if id != team.id => Err(Error::TeamNotFound),
        _ => Ok(Identity { team, credential: AuditCredential::AccessToken, key: None }),
    }
}

async fn by_admin_token(app: &App, token: &str, headers: &HeaderMap) -> Result<Identity> {
    check_admin_token(app, token)?;
    let id = named_team(headers).ok_or(Error::InvalidTeamId)??;
    let team = app.store().team(id).await?.ok_or(Error::TeamNotFound)?;
    Ok(Identity { team, credential: AuditCredential::AdminToken, key: None })
}

fn check_admin_token(app: &App, token: &str) -> Result<()> {
    match &app.config().admin_token {
        Some(expected) if expected.matches(token) => Ok(()),
        _ => Err(Error::UnknownAdminToken),
    }
}

/// The team that `X-Team-ID` names.
fn named_team(headers: &HeaderMap) -> Option<Result<Uuid>> {
    let id = headers.get("x-team-id")?;
    Some(id.to_str().ok().and_then(|id| Uuid::parse_str(id).ok()).ok_or(Error::InvalidTeamId))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The bearer token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    text(headers, "authorization")?.strip_prefix("Bearer ").map(str::trim)
}
