//! Calls for one sandbox: create, read, change, remove (contract: control-plane, section 6).

use std::fmt::Write;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use sandcove_wire::api::network::NetworkUpdate;
use sandcove_wire::api::sandbox as wire;
use sandcove_wire::id::CLIENT_ID;
use sha2::{Digest, Sha256};

use super::address::AskedAt;
use super::auth::{Caller, Reader};
use super::body::{self, Optional, Required};
use super::identity;
use super::params::Sandbox;
use crate::domain::event::KillReason;
use crate::domain::identity::Tokens;
use crate::domain::lifecycle::{Command, Keep, OnExpiry, Phase};
use crate::domain::limits;
use crate::domain::network::{NetworkChange, NetworkRules};
use crate::domain::reference::Reference;
use crate::domain::sandbox::{TokenPolicy, VolumeMount};
use crate::domain::team::Team;
use crate::sandboxes::{CreatePlan, Outcome, View};
use crate::state::App;
use crate::{Error, Result};

/// Timeout of v1 create and resume when the client gives none, seconds.
pub(super) const DEFAULT_TIMEOUT_V1: i32 = 15;
/// Timeout of v2 create and connect when the client gives none, seconds.
const DEFAULT_TIMEOUT_V2: i32 = 300;
/// The templates that code interpreters of the first generation ask for: those of `CodeInterpreter` and of `DataAnalysis`.
const LEGACY_INTERPRETERS: [&str; 2] = ["code-interpreter-stateful", "python3-dataanalysis"];
/// The template that they get, unless the team has one of that name.
const INTERPRETER: &str = "code-interpreter-v1";
/// Maximum time that a refresh gives, seconds.
const MAX_REFRESH: i32 = 3600;

/// The version of a create call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// The one of the first generation.
    Legacy,
    V1,
    V2,
}

pub(super) async fn create_v1(
    State(app): State<App>,
    Caller(team): Caller,
    headers: HeaderMap,
    Required(body): Required<wire::NewSandbox>,
) -> Result<Response> {
    let version = match legacy_release(&headers, &body) {
        Some(release) if !app.config().legacy => return Err(Error::LegacyClient(release)),
        Some(_) => Version::Legacy,
        None => Version::V1,
    };
    let plan = plan(&app, team, &headers, body, version).await?;
    let view = app.sandboxes().create(plan).await?;
    Ok(created(&app, &view))
}

/// The release of a client of the first generation, which looks for its services on other ports. The last pre-releases before 1.0 have
/// such numbers too, but like all later releases they send a timeout.
fn legacy_release(headers: &HeaderMap, body: &wire::NewSandbox) -> Option<String> {
    let release = official_release(headers)?;
    let is_number =
        release.len() <= 32 && release.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.+".contains(&b));
    (is_number && release.starts_with("0.") && body.timeout.is_none()).then(|| release.to_owned())
}

/// The release of an official client.
fn official_release(headers: &HeaderMap) -> Option<&str> {
    let is_e2b = headers.get("publisher").is_some_and(|publisher| publisher == "e2b");
    headers.get("package_version").filter(|_| is_e2b)?.to_str().ok()
}

/// The policy of the code interpreter for a sandbox that this client creates: whether it refuses to run code without the token. Official clients
/// send the token with code from 2.0 on (contract: interpreter, section 8).
fn interpreter_policy(headers: &HeaderMap, token_policy: TokenPolicy) -> TokenPolicy {
    let cannot_send = official_release(headers)
        .is_some_and(|release| ["0.", "1."].iter().any(|old| release.starts_with(old)));
    if cannot_send { TokenPolicy::Optional } else { token_policy }
}

pub(super) async fn create_v2(
    State(app): State<App>,
    Caller(team): Caller,
    headers: HeaderMap,
    request: Request,
) -> Result<Response> {
    let bytes = body::read(request).await?;
    let key = idempotency_key(&headers)?;
    let planned = {
        let (app, bytes) = (app.clone(), bytes.clone());
        let team = team.clone();
        async move { plan(&app, team, &headers, body::parse(&bytes)?, Version::V2).await }
    };
    let view = match key {
        // Another request with a key that was used is refused for that, whatever else is wrong with it; and the same request gets its
        // sandbox, whatever has become of the template.
        Some(key) => app.sandboxes().create_once(&team, key, fingerprint(&bytes)?, planned).await?,
        None => app.sandboxes().create(planned.await?).await?,
    };
    Ok(created(&app, &view))
}

fn created(app: &App, view: &View) -> Response {
    tracing::Span::current().record("sandbox_id", tracing::field::display(&view.details.id));
    body::json(StatusCode::CREATED, &sandbox(app, view))
}

pub(super) async fn detail(
    State(app): State<App>,
    Reader(team): Reader,
    Sandbox(id): Sandbox,
) -> Result<Response> {
    let view = app.sandboxes().view(&team, &id)?;
    let detail = wire::SandboxDetail {
        listed: listed(&view),
        envd_access_token: Some(view.details.access_token.clone()),
        allow_internet_access: view.settings.network.allow_internet_access,
        domain: app.domain(),
        network: view.settings.network.given.clone(),
        lifecycle: wire::Lifecycle {
            auto_resume: view.details.auto_resume,
            on_timeout: match view.settings.on_expiry {
                OnExpiry::Kill => wire::OnTimeout::Kill,
                OnExpiry::Pause | OnExpiry::PauseFiles => wire::OnTimeout::Pause,
            },
        },
        pause_mode: match view.phase {
            Phase::Paused(Keep::Memory) | Phase::Parking => Some(wire::PauseMode::Full),
            Phase::Paused(Keep::Files) => Some(wire::PauseMode::Filesystem),
            _ => None,
        },
    };
    Ok(body::json(StatusCode::OK, &detail))
}

pub(super) async fn kill(
    State(app): State<App>,
    Reader(team): Reader,
    Sandbox(id): Sandbox,
) -> Result<StatusCode> {
    app.sandboxes().execute(&team, &id, Command::Kill(KillReason::Request)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn pause(
    State(app): State<App>,
    Caller(team): Caller,
    Sandbox(id): Sandbox,
    AskedAt(asked_at): AskedAt,
    Optional(body): Optional<wire::Pause>,
) -> Result<StatusCode> {
    let entry = app.sandboxes().entry(&team, &id)?;
    if body.require_healthy_guest == Some(true) {
        entry.require_healthy().await?;
    } else if body.memory == Some(false) {
        entry.require_no_silence().await?;
    }
    entry.execute_asked_at(asked_at, Command::Pause(keep(body.memory))).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn park(
    State(app): State<App>,
    Caller(team): Caller,
    Sandbox(id): Sandbox,
) -> Result<StatusCode> {
    app.sandboxes().entry(&team, &id)?.execute(Command::Park).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn resume(
    State(app): State<App>,
    Caller(team): Caller,
    Sandbox(id): Sandbox,
    AskedAt(asked_at): AskedAt,
    Optional(body): Optional<wire::Resume>,
) -> Result<Response> {
    let timeout = positive_timeout(body.timeout.unwrap_or(DEFAULT_TIMEOUT_V1), &team)?;
    let entry = app.sandboxes().entry(&team, &id)?;
    let resume = Command::Resume { from: keep(body.memory), timeout, auto_pause: body.auto_pause };
    entry.execute_asked_at(asked_at, resume).await?;
    Ok(body::json(StatusCode::CREATED, &sandbox(&app, &entry.view())))
}

pub(super) async fn connect_v1(
    state: State<App>,
    caller: Caller,
    id: Sandbox,
    Required(body): Required<wire::Connect>,
) -> Result<Response> {
    let timeout =
        body.timeout.ok_or_else(|| Error::InvalidRequest("property \"timeout\" is missing".into()))?;
    connect(state, caller, id, timeout, body.memory).await
}

pub(super) async fn connect_v2(
    state: State<App>,
    caller: Caller,
    id: Sandbox,
    Optional(body): Optional<wire::Connect>,
) -> Result<Response> {
    connect(state, caller, id, body.timeout.unwrap_or(DEFAULT_TIMEOUT_V2), body.memory).await
}

async fn connect(
    State(app): State<App>,
    Caller(team): Caller,
    Sandbox(id): Sandbox,
    timeout: i32,
    memory: Option<bool>,
) -> Result<Response> {
    let timeout = any_timeout(timeout, &team)?;
    let entry = app.sandboxes().entry(&team, &id)?;
    let status = match entry.execute(Command::Connect { from: keep(memory), timeout }).await? {
        Outcome::Resumed => StatusCode::CREATED,
        Outcome::Done | Outcome::WasRunning | Outcome::SnapshotTaken(_) => StatusCode::OK,
    };
    Ok(body::json(status, &sandbox(&app, &entry.view())))
}

pub(super) async fn set_timeout(
    State(app): State<App>,
    Caller(team): Caller,
    Sandbox(id): Sandbox,
    Required(body): Required<wire::Timeout>,
) -> Result<StatusCode> {
    let seconds = u64::try_from(body.timeout).map_err(|_| Error::TimeoutNotPositive)?;
    app.sandboxes().execute(&team, &id, Command::SetTimeout(Duration::from_secs(seconds))).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn refresh(
    State(app): State<App>,
    Caller(team): Caller,
    Sandbox(id): Sandbox,
    Optional(body): Optional<wire::Refresh>,
) -> Result<StatusCode> {
    let seconds = u64::try_from(body.duration.unwrap_or_default())
        .ok()
        .filter(|seconds| *seconds <= MAX_REFRESH as u64)
        .ok_or_else(|| {
            Error::InvalidRequest(format!("property \"duration\" must be between 0 and {MAX_REFRESH}"))
        })?;
    app.sandboxes().execute(&team, &id, Command::Refresh(Duration::from_secs(seconds))).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn set_network(
    State(app): State<App>,
    Caller(team): Caller,
    Sandbox(id): Sandbox,
    Optional(body): Optional<NetworkUpdate>,
) -> Result<StatusCode> {
    let mut update = body;
    let proxy = app.secrets().proxy(&team, update.egress_proxy.take()).await?;
    let change = NetworkChange { update, proxy };
    app.sandboxes().execute(&team, &id, Command::SetNetwork(Some(Box::new(change)))).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Converts a create request to a plan.
async fn plan(
    app: &App,
    team: Team,
    headers: &HeaderMap,
    body: wire::NewSandbox,
    version: Version,
) -> Result<CreatePlan> {
    let default_timeout = match version {
        Version::Legacy | Version::V1 => DEFAULT_TIMEOUT_V1,
        Version::V2 => DEFAULT_TIMEOUT_V2,
    };
    let timeout = positive_timeout(body.timeout.unwrap_or(default_timeout), &team)?;
    check_sizes(&body)?;
    let reference: Reference = body.template_id.parse()?;
    let auto_pause = body.auto_pause.unwrap_or(false);
    let auto_resume = body.auto_resume.is_some_and(|resume| resume.enabled);
    if body.auto_pause_memory == Some(false) {
        let refused = |text: &str| Err(Error::Refused(text.into()));
        match (auto_pause, auto_resume) {
            (false, _) => return refused("autoPauseMemory cannot be false when autoPause is disabled"),
            (_, true) => return refused("autoPauseMemory cannot be false when autoResume is enabled"),
            (true, false) => {}
        }
    }
    let tokens = Tokens::new(body.iam, identity::issuer(app), &app.domain().unwrap_or_default())?;
    let asked = body.volume_mounts.unwrap_or_default();
    let asked: Vec<_> = asked.into_iter().map(|mount| (mount.name, mount.path)).collect();
    let mounts = app.volumes().mounts(&team, &asked).await?;
    let mut given = body.network;
    let proxy = given.as_mut().and_then(|network| network.egress_proxy.take());
    let network = NetworkRules::new(given, body.allow_internet_access)?;
    let network = network.with_proxy(app.secrets().proxy(&team, proxy).await?);
    let token_policy = match (version, body.secure) {
        (Version::V2, _) | (Version::Legacy | Version::V1, Some(true)) => TokenPolicy::Required,
        (Version::Legacy | Version::V1, Some(false) | None) => TokenPolicy::Optional,
    };
    if network.is_private() && token_policy == TokenPolicy::Optional {
        return Err(Error::Refused(
            "You cannot create a sandbox without public access unless you enable secure envd access via 'secure' flag."
                .into(),
        ));
    }
    let template = match app.templates().resolve(&team, &reference).await {
        Err(Error::TemplateNotFound(_))
            if version == Version::Legacy && LEGACY_INTERPRETERS.contains(&reference.alias()) =>
        {
            app.templates().resolve(&team, &INTERPRETER.parse()?).await?
        }
        found => found?,
    };
    // The server's own templates have pooled sandboxes anyway.
    if template.info.team.is_some() {
        app.templates().keep_ready(&team, &template.build, None).await;
    }
    let build = template.build;
    Ok(CreatePlan {
        team,
        files: build.files(),
        memory: build.memory_bytes.is_some(),
        build,
        timeout,
        on_expiry: match (auto_pause, keep(body.auto_pause_memory)) {
            (false, _) => OnExpiry::Kill,
            (true, Keep::Memory) => OnExpiry::Pause,
            (true, Keep::Files) => OnExpiry::PauseFiles,
        },
        auto_resume,
        token_policy,
        interpreter_policy: interpreter_policy(headers, token_policy),
        legacy: version == Version::Legacy,
        network,
        metadata: body.metadata.unwrap_or_default(),
        env_vars: body.env_vars.unwrap_or_default(),
        mcp: body.mcp,
        mounts,
        tokens,
    })
}

/// Checks the sizes of everything that is kept as the client gave it.
fn check_sizes(body: &wire::NewSandbox) -> Result<()> {
    body.metadata.as_ref().map_or(Ok(()), limits::check_metadata)?;
    body.env_vars.as_ref().map_or(Ok(()), limits::check_env_vars)?;
    body.mcp.as_ref().map_or(Ok(()), limits::check_mcp)
}

/// The state that `memory` asks to keep; everything by default.
pub(super) fn keep(memory: Option<bool>) -> Keep {
    if memory == Some(false) { Keep::Files } else { Keep::Memory }
}

/// A timeout of at least a second and at most the team's maximum session.
pub(super) fn positive_timeout(seconds: i32, team: &Team) -> Result<Duration> {
    if seconds == 0 {
        return Err(Error::TimeoutNotPositive);
    }
    any_timeout(seconds, team)
}

fn any_timeout(seconds: i32, team: &Team) -> Result<Duration> {
    let timeout = Duration::from_secs(u64::try_from(seconds).map_err(|_| Error::TimeoutNotPositive)?);
    if timeout > team.max_session {
        let hours = team.max_session.as_secs() / 3600;
        return Err(Error::TimeoutTooLong(hours));
    }
    Ok(timeout)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let key = value.to_str().unwrap_or_default();
    let allowed = key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if (1..=255).contains(&key.len()) && allowed {
        Ok(Some(key.to_owned()))
    } else {
        Err(Error::InvalidRequest(
            "header \"Idempotency-Key\" must be 1 to 255 characters of a-z, 0-9 and -".into(),
        ))
    }
}

/// A digest of a request body that ignores member order and white space.
fn fingerprint(bytes: &[u8]) -> Result<String> {
    let mut value: serde_json::Value = body::parse(bytes)?;
    // Members are sorted already, unless another crate of the program has made serde_json keep the sender's order.
    value.sort_all_objects();
    let digest = Sha256::digest(value.to_string().as_bytes());
    Ok(digest.iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// The body of an answer to create, connect and resume.
pub(super) fn sandbox(app: &App, view: &View) -> wire::Sandbox {
    let details = &view.details;
    wire::Sandbox {
        template_id: details.build.template_id().to_string(),
        sandbox_id: details.id.clone(),
        client_id: CLIENT_ID.to_owned(),
        alias: details.build.alias().to_owned(),
        envd_version: details.build.envd_version().to_owned(),
        envd_access_token: Some(details.access_token.clone()),
        traffic_access_token: details.traffic_token.clone(),
        domain: app.domain(),
    }
}

/// A sandbox as the lists show it.
pub(super) fn listed(view: &View) -> wire::ListedSandbox {
    let details = &view.details;
    wire::ListedSandbox {
        template_id: details.build.template_id().to_string(),
        alias: details.build.alias().to_owned(),
        sandbox_id: details.id.clone(),
        client_id: CLIENT_ID.to_owned(),
        started_at: view.session.started_at,
        end_at: view.session.end_at,
        cpu_count: details.limits.cpus,
        memory_mb: details.limits.memory_mib,
        disk_size_mb: details.limits.disk_mib,
        metadata: details.metadata.clone(),
        state: if view.is_paused() { wire::State::Paused } else { wire::State::Running },
        envd_version: details.build.envd_version().to_owned(),
        volume_mounts: details.mounts.iter().map(volume_mount).collect(),
        envd_unresponsive_at_pause: view.is_unresponsive().then_some(true),
        kept_memory: kept_memory(view),
    }
}

fn kept_memory(view: &View) -> Option<wire::KeptMemory> {
    let (place, bytes) = match (view.phase, view.settings.parked) {
        (Phase::Paused(Keep::Memory), Some(bytes)) => (wire::MemoryPlace::Disk, bytes),
        (Phase::Paused(Keep::Memory) | Phase::Parking, _) => (wire::MemoryPlace::Host, view.memory),
        _ => return None,
    };
    Some(wire::KeptMemory { place, bytes })
}

fn volume_mount(mount: &VolumeMount) -> wire::VolumeMount {
    wire::VolumeMount { name: mount.name.clone(), path: mount.mount.path.clone() }
}
