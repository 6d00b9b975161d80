//! Webhooks, and the deliveries to them (contract: dashboard, section 5).

use std::collections::HashSet;

use axum::extract::State;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{StatusCode, Uri};
use jiff::{SignedDuration, Timestamp};
use sandcove_wire::api::event as wire;
use sandcove_wire::secret::Secret;
use uuid::Uuid;

use super::audit;
use super::auth::{Caller, Reader};
use super::body::{self, Required};
use super::events::flag;
use super::params::{Id, Path, Query, invalid};
use crate::domain::event::check_types;
use crate::domain::team::Team;
use crate::domain::webhook::Webhook;
use crate::state::App;
use crate::store::AttemptQuery;
use crate::{Error, Result, clock};

/// Maximum length of a name, a URL and a secret, characters.
const MAX_NAME: usize = 128;
const MAX_URL: usize = 2048;
const MAX_SECRET: usize = 512;
/// Maximum and default number of deliveries in one page.
const MAX_DELIVERIES: i64 = 100;
const DEFAULT_DELIVERIES: i64 = 25;
const HOUR_MICROS: i64 = 3600 * 1_000_000;

pub(super) async fn list(State(app): State<App>, Reader(team): Reader) -> Result<Response> {
    let webhooks = app.store().webhooks(team.id).await?;
    Ok(body::json(StatusCode::OK, &webhooks.iter().map(shown).collect::<Vec<_>>()))
}

pub(super) async fn create(
    State(app): State<App>,
    Caller(team): Caller,
    Required(body): Required<wire::NewWebhook>,
) -> Result<Response> {
    let webhook = Webhook {
        id: Uuid::new_v4(),
        team: team.id,
        name: name(body.name)?,
        url: url(body.url)?,
        enabled: body.enabled,
        events: events(body.events)?,
        secret: secret(body.signature_secret)?,
        created_at: clock::now(),
    };
    app.store().put_webhook(&webhook).await?;
    Ok(audit::created(body::json(StatusCode::CREATED, &shown(&webhook)), webhook.id))
}

pub(super) async fn detail(State(app): State<App>, Reader(team): Reader, Id(id): Id) -> Result<Response> {
    Ok(body::json(StatusCode::OK, &shown(&find(&app, &team, id).await?)))
}

pub(super) async fn update(
    State(app): State<App>,
    Caller(team): Caller,
    Id(id): Id,
    Required(body): Required<wire::WebhookUpdate>,
) -> Result<Response> {
    let mut webhook = find(&app, &team, id).await?;
    if let Some(new) = body.name {
        webhook.name = name(new)?;
    }
    if let Some(new) = body.url {
        webhook.url = url(new)?;
    }
    if let Some(new) = body.events {
        webhook.events = events(new)?;
    }
    if let Some(new) = body.signature_secret {
        webhook.secret = secret(new)?;
    }
    webhook.enabled = body.enabled.unwrap_or(webhook.enabled);
    app.store().put_webhook(&webhook).await?;
    Ok(body::json(StatusCode::OK, &shown(&webhook)))
}

pub(super) async fn delete(State(app): State<App>, Reader(team): Reader, Id(id): Id) -> Result<Response> {
    let webhook = find(&app, &team, id).await?;
    app.store().delete_webhook(team.id, id).await?;
    Ok(body::json(StatusCode::OK, &shown(&webhook)))
}

pub(super) async fn deliveries(
    State(app): State<App>,
    Reader(team): Reader,
    Id(id): Id,
    query: Query,
) -> Result<Response> {
    find(&app, &team, id).await?;
    let limit = query.integer_in("limit", 1..=MAX_DELIVERIES, DEFAULT_DELIVERIES)?;
    let offset = query.text("cursor").map(cursor).transpose()?.unwrap_or(0);
    let kind = query.text("eventType").map(str::to_owned);
    check_types(kind.as_slice())?;
    let wanted = AttemptQuery {
        start: query.time("start")?,
        end: query.time("end")?,
        is_success: match query.text("deliveryStatus") {
            None => None,
            Some("success") => Some(true),
            Some("failed") => Some(false),
            Some(_) => return Err(invalid("deliveryStatus", "must be success or failed")),
        },
        kind,
        ascending: flag(&query, "orderAsc")?,
        offset,
        limit: limit + 1,
    };
    let mut found = app.store().attempts(id, &wanted).await?;
    let more = i64::try_from(found.len()).unwrap_or(i64::MAX) > limit;
    if more {
        found.pop();
    }
    let answer = wire::Deliveries {
        data: found.into_iter().filter_map(delivery).collect(),
        next_cursor: more.then(|| URL_SAFE_NO_PAD.encode((offset + limit).to_string())),
    };
    Ok(body::json(StatusCode::OK, &answer))
}

pub(super) async fn redeliver(
    State(app): State<App>,
    Caller(team): Caller,
    Path((id, attempt)): Path<(String, String)>,
) -> Result<Response> {
    let parse = |id: &str| Uuid::parse_str(id).map_err(|_| Error::NotAUuid);
    let (id, attempt) = (parse(&id)?, parse(&attempt)?);
    if !find(&app, &team, id).await?.enabled {
        return Err(Error::WebhookDisabled(id));
    }
    let attempts = app.store().redeliver(id, attempt).await?;
    let delivery = delivery(attempts).ok_or(Error::DeliveryNotFound(attempt))?;
    Ok(body::json(StatusCode::ACCEPTED, &delivery))
}

/// The delivery that these attempts belong to.
fn delivery(attempts: Vec<wire::Attempt>) -> Option<wire::Delivery> {
    let first = attempts.first()?;
    Some(wire::Delivery {
        event_id: first.event_id.clone(),
        event_type: first.event_type.clone(),
        sandbox_id: first.sandbox_id.clone(),
        attempts,
    })
}

pub(super) async fn stats(
    State(app): State<App>,
    Reader(team): Reader,
    Id(id): Id,
    query: Query,
) -> Result<Response> {
    find(&app, &team, id).await?;
    let end = query.time("end")?.unwrap_or_else(clock::now);
    let day_before = || end.checked_sub(SignedDuration::from_hours(24)).unwrap_or(Timestamp::MIN);
    let start = query.time("start")?.unwrap_or_else(day_before);
    if start > end {
        return Err(Error::InvalidTimeRange);
    }
    let counts = app.store().attempt_counts(id, (start, end), HOUR_MICROS).await?;
    let total: i64 = counts.iter().map(|hour| hour.total).sum();
    let average = |sum: i64, total: i64| if total == 0 { 0.0 } else { sum as f64 / total as f64 };
    let answer = wire::WebhookStats {
        buckets: counts
            .iter()
            .map(|hour| wire::StatsBucket {
                timestamp: hour.began,
                total: hour.total,
                failed: hour.failed,
                duration_ms: average(hour.sum, hour.total),
            })
            .collect(),
        total,
        failed: counts.iter().map(|hour| hour.failed).sum(),
        duration_ms: wire::Durations {
            minimum: counts.iter().map(|hour| hour.minimum).min().unwrap_or(0),
            average: average(counts.iter().map(|hour| hour.sum).sum(), total),
            maximum: counts.iter().map(|hour| hour.maximum).max().unwrap_or(0),
        },
    };
    Ok(body::json(StatusCode::OK, &answer))
}

async fn find(app: &App, team: &Team, id: Uuid) -> Result<Webhook> {
    let webhooks = app.store().webhooks(team.id).await?;
    webhooks.into_iter().find(|webhook| webhook.id == id).ok_or(Error::WebhookNotFound(id))
}

fn cursor(text: &str) -> Result<i64> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok();
    let number = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).and_then(|text| text.parse().ok());
    number.filter(|number| *number >= 0).ok_or_else(|| invalid("cursor", "is not one this server gave"))
}

fn name(name: String) -> Result<String> {
    sized("name", name, MAX_NAME)
}

fn secret(secret: Secret) -> Result<Secret> {
    sized("signatureSecret", secret.expose().to_owned(), MAX_SECRET).map(Secret::new)
}

fn sized(property: &str, value: String, max: usize) -> Result<String> {
    if value.trim().is_empty() || value.chars().count() > max {
        return Err(Error::InvalidRequest(format!(
            "property \"{property}\" must have 1 to {max} characters"
        )));
    }
    Ok(value)
}

pub(super) fn url(url: String) -> Result<String> {
    let url = sized("url", url, MAX_URL)?;
    let parsed: Uri =
        url.parse().map_err(|_| Error::InvalidRequest("property \"url\" must be a URL".to_owned()))?;
    match (parsed.scheme_str(), parsed.host()) {
        (Some("http" | "https"), Some(_)) => Ok(url),
        _ => Err(Error::InvalidRequest(
            "property \"url\" must begin with https:// or http:// and name a host".to_owned(),
        )),
    }
}

fn events(mut events: Vec<String>) -> Result<Vec<String>> {
    if events.is_empty() {
        return Err(Error::InvalidRequest(
            "property \"events\" must name at least one type of event".to_owned(),
        ));
    }
    check_types(&events)?;
    // A type that is named again adds nothing.
    let mut known = HashSet::new();
    events.retain(|kind| known.insert(kind.clone()));
    Ok(events)
}

fn shown(webhook: &Webhook) -> wire::Webhook {
    wire::Webhook {
        id: webhook.id.to_string(),
        team_id: webhook.team.to_string(),
        name: webhook.name.clone(),
        created_at: webhook.created_at,
        url: webhook.url.clone(),
        enabled: webhook.enabled,
        events: webhook.events.clone(),
    }
}
