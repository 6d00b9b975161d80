//! The activity of a team over time (contract: control-plane, section 8).

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use sandcove_wire::api::observe::{TeamMetric, TeamMetricMax};

use super::auth::Reader;
use super::body;
use super::params::{Id, Query, invalid};
use crate::sandboxes::sample_step;
use crate::state::App;
use crate::store::{Activity, Peak};
use crate::{Error, Result, clock};

const DAY_SECONDS: i64 = 24 * 3600;
/// Default and maximum length of the time span.
const DEFAULT_DAYS: i64 = 7;
const MAX_DAYS: i64 = 31;

pub(super) async fn series(
    State(app): State<App>,
    Reader(team): Reader,
    Id(id): Id,
    query: Query,
) -> Result<Response> {
    let (start, end) = range(&query)?;
    if id != team.id {
        return Err(Error::TeamForbidden);
    }
    let step = step(&app, start, end);
    let activity = app.store().activity(id, start, end, step).await?;
    let metric = |row: &Activity| TeamMetric {
        timestamp: time(row.timestamp),
        timestamp_unix: row.timestamp,
        concurrent_sandboxes: row.concurrent,
        sandbox_start_rate: row.starts as f64 / step as f64,
    };
    Ok(body::json(StatusCode::OK, &activity.iter().map(metric).collect::<Vec<_>>()))
}

pub(super) async fn max(
    State(app): State<App>,
    Reader(team): Reader,
    Id(id): Id,
    query: Query,
) -> Result<Response> {
    let (start, end) = range(&query)?;
    let finest = finest(&app);
    let (of, value): (Peak, fn(&Activity, i64) -> f64) = match query.text("metric") {
        Some("concurrent_sandboxes") => (Peak::Concurrent, |row, _| row.concurrent as f64),
        Some("sandbox_start_rate") => (Peak::Starts, |row, finest| row.starts as f64 / finest as f64),
        _ => return Err(invalid("metric", "must be concurrent_sandboxes or sandbox_start_rate")),
    };
    if id != team.id {
        return Err(Error::TeamForbidden);
    }
    let peak = app.store().peak(id, start, end, of).await?;
    let (timestamp, value) = peak.map_or((end, 0.0), |row| (row.timestamp, value(&row, finest)));
    let answer = TeamMetricMax { timestamp: time(timestamp), timestamp_unix: timestamp, value };
    Ok(body::json(StatusCode::OK, &answer))
}

fn range(query: &Query) -> Result<(i64, i64)> {
    let end = query.integer("end")?.unwrap_or_else(|| clock::now().as_second());
    let start = query.integer("start")?.unwrap_or_else(|| end.saturating_sub(DEFAULT_DAYS * DAY_SECONDS));
    for (name, value) in [("start", start), ("end", end)] {
        Timestamp::from_second(value).map_err(|_| invalid(name, "must be Unix seconds"))?;
    }
    if start > end {
        return Err(Error::InvalidTimeRange);
    }
    if end - start > MAX_DAYS * DAY_SECONDS {
        return Err(Error::Refused(format!("the time between start and end cannot exceed {MAX_DAYS} days")));
    }
    Ok((start, end))
}

/// Seconds between two points: as documented, but no finer than the stored activity.
fn step(app: &App, start: i64, end: i64) -> i64 {
    sample_step(end - start).max(finest(app))
}

/// The interval of what is stored, seconds.
fn finest(app: &App) -> i64 {
    i64::try_from(app.config().team_metrics_step.as_secs()).unwrap_or(1).max(1)
}

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or_default()
}
