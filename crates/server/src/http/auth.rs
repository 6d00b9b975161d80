//! Who is asking (contract: control-plane, section 2). The schemes are tried in order; one valid one is enough, and when
//! none is, the error of the first that was tried is the answer.

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;
use uuid::Uuid;

use crate::app::App;
use crate::teams::{Standing, Team};
use crate::{Error, Result};

const KEYS_PAGE: &str = "https://e2b.dev/docs/api-key";
const LOGIN_COMMAND: &str = "'e2b auth login'";

/// A team that may change things.
pub(super) struct Caller(pub(super) Team);

/// A team that may look and clean up, blocked or not.
pub(super) struct Reader(pub(super) Team);

/// The default team, shown by the access token; no API key is needed.
pub(super) struct Person(pub(super) Team);

impl FromRequestParts<App> for Caller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let Reader(team) = Reader::from_request_parts(parts, app).await?;
        match team.standing {
            Standing::Blocked(reason) => Err(Error::TeamBlocked(reason)),
            Standing::Good | Standing::Banned => Ok(Self(team)),
        }
    }
}

impl FromRequestParts<App> for Reader {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let team = authenticate(app, &parts.headers).await?;
        match team.standing {
            Standing::Banned => Err(Error::TeamBanned),
            Standing::Good | Standing::Blocked(_) => Ok(Self(team)),
        }
    }
}

impl FromRequestParts<App> for Person {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let token = bearer(&parts.headers).ok_or(Error::NoCredentials)?;
        by_access_token(app, token).await.map(Self)
    }
}

async fn authenticate(app: &App, headers: &HeaderMap) -> Result<Team> {
    let mut first_error = None;
    if let Some(key) = text(headers, "x-api-key") {
        match by_api_key(app, key).await {
            Ok(team) => return Ok(team),
            Err(error) => first_error = Some(error),
        }
    }
    if let Some(token) = bearer(headers) {
        match by_access_token(app, token).await {
            Ok(team) => return Ok(team),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    if let Some(token) = text(headers, "x-admin-token") {
        match by_admin_token(app, token, headers).await {
            Ok(team) => return Ok(team),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or(Error::NoCredentials))
}

async fn by_api_key(app: &App, key: &str) -> Result<Team> {
    match app.store().team_of_key(key).await? {
        Some(team) => Ok(team),
        None if !key.starts_with("e2b_") => Err(Error::MalformedCredential("Invalid API key format")),
        None => Err(Error::UnknownApiKey(KEYS_PAGE)),
    }
}

async fn by_access_token(app: &App, token: &str) -> Result<Team> {
    match &app.config().access_token {
        Some(expected) if expected.matches(token) => app.store().default_team().await,
        _ if !token.starts_with("sk_e2b_") => {
            Err(Error::MalformedCredential("authorization header is malformed"))
        }
        _ => Err(Error::UnknownAccessToken(LOGIN_COMMAND)),
    }
}

async fn by_admin_token(app: &App, token: &str, headers: &HeaderMap) -> Result<Team> {
    match &app.config().admin_token {
        Some(expected) if expected.matches(token) => {}
        _ => return Err(Error::UnknownAdminToken),
    }
    let id =
        text(headers, "x-team-id").and_then(|id| Uuid::parse_str(id).ok()).ok_or(Error::InvalidTeamId)?;
    app.store().team(id).await?.ok_or(Error::TeamNotFound)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    text(headers, "authorization")?.strip_prefix("Bearer ").map(str::trim)
}
