//! Requests of pages that go on: below `/dashboard/api` to the API, below `/dashboard/sandbox/<id>/<port>` to the agent or the interpreter of a
//! sandbox.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, header};
use sandcove_wire::boot::{AGENT_PORT, INTERPRETER_PORT};
use sandcove_wire::id::SandboxId;
use sandcove_wire::secret::Secret;
use uuid::Uuid;

use super::sessions::{Credential, Sessions};
use super::{Course, ROOT, not_logged_in};
use crate::domain::team::Team;
use crate::http::{operator_of, team_of};
use crate::proxy::host_route::Target;
use crate::sandboxes::Upload;
use crate::state::App;
use crate::state::credentials::{ADMIN_TOKEN, API_KEY};
use crate::{Error, Result};

/// Headers of a page's request that go on. `Authorization` names an account of the sandbox and is passed to the agent only.
const PASSED: [HeaderName; 10] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::RANGE,
    header::TRANSFER_ENCODING,
    HeaderName::from_static("connect-protocol-version"),
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("x-team-id"),
];

/// Turns a page's request into one of a client.
pub(super) async fn prepare(
    app: &App,
    sessions: &Sessions,
    mut request: Request<Upload>,
    is_secure: bool,
) -> Result<Course> {
    let credential = sessions.find(request.headers(), is_secure).ok_or_else(not_logged_in)?;
    let account = account(request.headers());
    let unwanted: Vec<HeaderName> =
        request.headers().keys().filter(|name| !PASSED.contains(name)).cloned().collect();
    for name in &unwanted {
        request.headers_mut().remove(name);
    }
    let path = request.uri().path();
    if path.starts_with("/dashboard/api/") {
        cut(&mut request, ROOT.len() + "/api".len());
        // It answers with a new API key, and scripts must have none but those that a user creates.
        if request.uri().path() == "/teams" {
            return Err(Error::NoRoute("/teams on the dashboard".into()));
        }
        if let Some(id) = volume(request.uri().path()) {
            open_volume(app, &credential, request.headers_mut(), id).await?;
        }
        credential.put_into(request.headers_mut());
        return Ok(Course::Api(request));
    }
    let no_route = || Error::NoRoute(format!("{} {path}", request.method()));
    let mut parts = path.splitn(6, '/').skip(3);
    let (Some(id), Some(port), Some(_)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(no_route());
    };
    let length = "/dashboard/sandbox/".len() + id.len() + 1 + port.len();
    let id: SandboxId = id.parse().map_err(|_| Error::InvalidSandboxId)?;
    let port = port
        .parse()
        .ok()
        .filter(|port| [AGENT_PORT, INTERPRETER_PORT].contains(port))
        .ok_or_else(no_route)?;
    authorize(app, &credential, request.headers_mut(), &id).await?;
    if let Some(account) = account {
        request.headers_mut().insert(header::AUTHORIZATION, account);
    }
    cut(&mut request, length);
    Ok(Course::Sandbox(request, Target::Sandbox { id, port }))
}

/// The volume whose files a path names.
fn volume(path: &str) -> Option<Uuid> {
    path.strip_prefix("/volumecontent/")?.split('/').next()?.parse().ok()
}

/// Replaces the credential of a request by the token of a volume, if the volume is the caller's. Files of volumes are opened by these tokens only.
async fn open_volume(app: &App, credential: &Credential, headers: &mut HeaderMap, id: Uuid) -> Result<()> {
    let volume = match owner(app, credential).await? {
        Some(team) => app.volumes().get(&team, id).await?,
        None => {
            let volume = app.store().all_volumes().await?.into_iter().find(|volume| volume.id == id);
            volume.ok_or(Error::VolumeNotFound(id))?
        }
    };
    headers.remove(API_KEY);
    headers.remove(ADMIN_TOKEN);
    Credential::Token(Secret::new(app.volumes().token(&volume))).put_into(headers);
    Ok(())
}

/// The team whose sandboxes and volumes a credential opens; none for the admin token, which opens those of all teams.
pub(super) async fn owner(app: &App, credential: &Credential) -> Result<Option<Team>> {
    let mut headers = HeaderMap::new();
    credential.put_into(&mut headers);
    match credential {
        Credential::Admin(_) => operator_of(app, &headers).map(|()| None),
        Credential::Key(_) | Credential::Token(_) => team_of(app, &headers).await.map(Some),
    }
}

/// Adds the tokens of a sandbox to a request, if the sandbox is the caller's.
async fn authorize(
    app: &App,
    credential: &Credential,
    headers: &mut HeaderMap,
    id: &SandboxId,
) -> Result<()> {
    let owner = owner(app, credential).await?;
    let is_own = |team: Uuid| owner.as_ref().is_none_or(|owner| owner.id == team);
    let entry = app.sandboxes().find(id).filter(|entry| is_own(entry.details.team));
    let details = entry.ok_or_else(|| Error::SandboxNotFound(id.to_string()))?.details.clone();
    let tokens = [
        ("x-access-token", Some(&details.access_token)),
        ("e2b-traffic-access-token", details.traffic_token.as_ref()),
    ];
    headers.remove("x-team-id");
    for (name, token) in tokens {
        if let Some(mut value) = token.and_then(|token| HeaderValue::from_str(token.expose()).ok()) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
    Ok(())
}

/// The account of the sandbox that a request is for, in the form of HTTP's basic authentication.
fn account(headers: &HeaderMap) -> Option<HeaderValue> {
    let value = headers.get(header::AUTHORIZATION)?;
    value.to_str().ok()?.starts_with("Basic ").then(|| value.clone())
}

/// Cuts off the beginning of a path.
fn cut(request: &mut Request<Upload>, length: usize) {
    let whole = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    let rest = whole.get(length..).filter(|rest| rest.starts_with('/')).unwrap_or("/");
    if let Ok(rest) = PathAndQuery::try_from(rest) {
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = Some(rest);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
}
