//! Calls of operators for teams (contract: control-plane, section 13). `/admin/teams` itself, to list, create and change
//! teams, is this server's own addition.

use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use sandcove_wire::api::admin as wire;
use sandcove_wire::api::team::Named;
use uuid::Uuid;

use super::audit;
use super::auth::{Operator, may_act};
use super::body::{self, Required};
use super::keys;
use super::params::{Id, Path};
use crate::domain::team::{Caps, Quota, Standing, Team, rates};
use crate::state::App;
use crate::{Error, Result};

const HOUR: u64 = 3600;
/// Default limits of a new team.
const DEFAULT_SANDBOXES: u32 = 20;
const DEFAULT_HOURS: u64 = 24;
const DEFAULT_TTL_DAYS: u32 = 7;
/// Maximum time for which a team's events are kept.
const MAX_TTL_DAYS: u32 = 365;
/// Maximum length of a name, characters.
const MAX_NAME: usize = 128;

/// The team that a path names, for an operator.
pub(super) struct OfPath(Team);

impl FromRequestParts<App> for OfPath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        Operator::from_request_parts(parts, app).await?;
        let Id(id) = Id::from_request_parts(parts, app).await?;
        app.store().team(id).await?.map(Self).ok_or(Error::TeamNotFound)
    }
}

pub(super) async fn list(State(app): State<App>, _: Operator) -> Result<Response> {
    let teams = app.store().teams().await?;
    Ok(body::json(StatusCode::OK, &teams.into_iter().map(shown).collect::<Vec<_>>()))
}

pub(super) async fn create(
    State(app): State<App>,
    _: Operator,
    Required(body): Required<wire::NewTeam>,
) -> Result<Response> {
    let name = name(&body.name)?;
    let slug = match &body.slug {
        Some(slug) => slug.clone(),
        None => name.to_lowercase().split_whitespace().collect::<Vec<_>>().join("-"),
    };
    check_slug(&slug)?;
    let mut team = Team {
        id: Uuid::new_v4(),
        slug,
        name,
        is_default: false,
        standing: Standing::Good,
        max_sandboxes: DEFAULT_SANDBOXES,
        max_session: Duration::from_secs(DEFAULT_HOURS * HOUR),
        caps: Caps::default(),
        events_ttl_days: DEFAULT_TTL_DAYS,
        quota: Quota::default(),
    };
    limit(&mut team, &body.limits)?;
    app.store().add_team(&team).await?;
    let id = team.id;
    Ok(audit::created(body::json(StatusCode::CREATED, &shown(team)), id))
}

pub(super) async fn detail(OfPath(team): OfPath) -> Response {
    body::json(StatusCode::OK, &shown(team))
}

pub(super) async fn update(
    State(app): State<App>,
    OfPath(mut team): OfPath,
    Required(body): Required<wire::TeamUpdate>,
) -> Result<Response> {
    if let Some(new) = &body.name {
        team.name = name(new)?;
    }
    limit(&mut team, &body.limits)?;
    team.standing = standing(&team.standing, &body);
    app.store().update_team(&team).await?;
    app.sandboxes().limits_changed(&team);
    Ok(body::json(StatusCode::OK, &shown(team)))
}

pub(super) async fn kill(State(app): State<App>, OfPath(team): OfPath) -> Response {
    let (killed_count, failed_count) = app.sandboxes().kill_of(team.id).await;
    body::json(StatusCode::OK, &wire::Killed { killed_count, failed_count })
}

/// Cancels the builds of a team that wait or are in progress.
pub(super) async fn cancel_builds(State(app): State<App>, OfPath(team): OfPath) -> Result<Response> {
    const WHY: &str = "cancelled by admin";
    let cancelled = app.store().cancel_builds(&team, WHY).await?;
    app.builds().cancel(&cancelled, WHY);
    let cancelled_count = u32::try_from(cancelled.len()).unwrap_or(u32::MAX);
    Ok(body::json(StatusCode::OK, &wire::Cancelled { cancelled_count, failed_count: 0 }))
}

pub(super) async fn create_key(
    State(app): State<App>,
    OfPath(team): OfPath,
    Required(body): Required<Named>,
) -> Result<Response> {
    if team.standing == Standing::Banned {
        return Err(Error::TeamBanned);
    }
    keys::created(&app, &may_act(team)?, &body).await
}

pub(super) async fn delete_key(
    State(app): State<App>,
    _: Operator,
    Path((team, key)): Path<(String, String)>,
) -> Result<StatusCode> {
    let parse = |id: &str| Uuid::parse_str(id).map_err(|_| Error::NotAUuid);
    let (team, key) = (parse(&team)?, parse(&key)?);
    let team = app.store().team(team).await?.ok_or(Error::TeamNotFound)?;
    match app.store().delete_key(&team, key).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Error::IdNotFound),
    }
}

pub(super) async fn running_counts(State(app): State<App>, _: Operator) -> Response {
    let mut counts = wire::RunningCounts::new();
    for view in app.sandboxes().all_views() {
        if !view.is_paused() {
            *counts.entry(view.details.team.to_string()).or_default() += 1;
        }
    }
    body::json(StatusCode::OK, &counts)
}

fn name(name: &str) -> Result<String> {
    let name = name.trim();
    if name.is_empty() || name.chars().count() > MAX_NAME {
        return Err(Error::InvalidRequest(format!("property \"name\" must have 1 to {MAX_NAME} characters")));
    }
    Ok(name.to_owned())
}

/// Checks a slug, which is the namespace of template names and follows their grammar.
fn check_slug(slug: &str) -> Result<()> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    if slug.is_empty() || slug.len() > MAX_NAME || !slug.bytes().all(allowed) {
        return Err(Error::InvalidRequest(format!(
            "property \"slug\" must be of a-z, 0-9, - and _, not \"{slug}\""
        )));
    }
    Ok(())
}

fn limit(team: &mut Team, limits: &wire::LimitsUpdate) -> Result<()> {
    let positive = |name: &str, value: u64| match value {
        0 => Err(Error::InvalidRequest(format!("property \"{name}\" must be at least 1"))),
        _ => Ok(value),
    };
    if let Some(hours) = limits.max_length_hours {
        let hours = positive("maxLengthHours", hours)?;
        team.max_session = Duration::from_secs(hours.min(u64::from(u32::MAX)) * HOUR);
    }
    if let Some(max) = limits.concurrent_sandboxes {
        team.max_sandboxes = max;
    }
    if let Some(cpus) = limits.max_vcpu {
        positive("maxVcpu", u64::from(cpus))?;
        team.caps.cpus = cpus;
    }
    if let Some(mib) = limits.max_ram_mb {
        team.caps.memory_mib = positive("maxRamMb", mib)?;
    }
    if let Some(mib) = limits.disk_mb {
        team.caps.disk_mib = positive("diskMb", mib)?;
    }
    team.caps.rates = rates(
        limits.bandwidth_mbps.unwrap_or(team.caps.bandwidth_mbps()),
        limits.connections_per_second.or(team.caps.rates.connections).unwrap_or_default(),
    );
    if let Some(days) = limits.events_ttl_days {
        if !(1..=MAX_TTL_DAYS).contains(&days) {
            return Err(Error::InvalidRequest(format!(
                "property \"eventsTtlDays\" must be between 1 and {MAX_TTL_DAYS}"
            )));
        }
        team.events_ttl_days = days;
    }
    keep(&mut team.quota, limits);
    Ok(())
}

/// Changes the limits of what is kept for a team; zero keeps nothing.
fn keep(quota: &mut Quota, limits: &wire::LimitsUpdate) {
    *quota = Quota {
        paused: limits.paused_sandboxes.unwrap_or(quota.paused),
        in_memory: limits.paused_in_memory.unwrap_or(quota.in_memory),
        memory_mib: limits.paused_ram_mb.unwrap_or(quota.memory_mib),
        parked_mib: limits.paused_disk_mb.unwrap_or(quota.parked_mib),
        snapshots: limits.snapshots.unwrap_or(quota.snapshots),
        snapshots_mib: limits.snapshots_mb.unwrap_or(quota.snapshots_mib),
        volumes: limits.volumes.unwrap_or(quota.volumes),
    };
}

fn standing(now: &Standing, update: &wire::TeamUpdate) -> Standing {
    let banned = update.is_banned.unwrap_or(*now == Standing::Banned);
    let reason = match now {
        Standing::Blocked(reason) => Some(reason.clone()),
        Standing::Good | Standing::Banned => None,
    };
    let blocked = update.is_blocked.unwrap_or(reason.is_some());
    match (banned, blocked) {
        (true, _) => Standing::Banned,
        (false, true) => Standing::Blocked(update.blocked_reason.clone().or(reason).unwrap_or_default()),
        (false, false) => Standing::Good,
    }
}

fn shown(team: Team) -> wire::AdminTeam {
    wire::AdminTeam {
        id: team.id.to_string(),
        name: team.name,
        slug: team.slug,
        is_default: team.is_default,
        is_banned: team.standing == Standing::Banned,
        is_blocked: matches!(team.standing, Standing::Blocked(_)),
        blocked_reason: match team.standing {
            Standing::Blocked(reason) => Some(reason),
            Standing::Good | Standing::Banned => None,
        },
        limits: wire::TeamLimits {
            max_length_hours: team.max_session.as_secs() / HOUR,
            concurrent_sandboxes: team.max_sandboxes,
            max_vcpu: team.caps.cpus,
            max_ram_mb: team.caps.memory_mib,
            disk_mb: team.caps.disk_mib,
            events_ttl_days: team.events_ttl_days,
            paused_sandboxes: team.quota.paused,
            paused_in_memory: team.quota.in_memory,
            paused_ram_mb: team.quota.memory_mib,
            paused_disk_mb: team.quota.parked_mib,
            snapshots: team.quota.snapshots,
            snapshots_mb: team.quota.snapshots_mib,
            volumes: team.quota.volumes,
            bandwidth_mbps: team.caps.bandwidth_mbps(),
            connections_per_second: team.caps.rates.connections.unwrap_or_default(),
        },
    }
}
