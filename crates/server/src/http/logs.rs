//! Logs of one sandbox (contract: control-plane, section 8), kept for a week, also for a removed sandbox. An unknown sandbox
//! has none.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use sandcove_wire::api::observe::{LogEntry, LogLevel, LogLine, SandboxLogs, SandboxLogsV2};
use serde_json::json;

use super::auth::Reader;
use super::body;
use super::params::{Query, Sandbox, invalid};
use crate::Result;
use crate::state::App;

/// Maximum number of entries in one answer.
const MAX_ENTRIES: i64 = 1000;
/// Maximum length of a search, characters.
const MAX_SEARCH: usize = 256;

/// Lists entries from `start` on, oldest first.
pub(super) async fn v1(
    State(app): State<App>,
    Reader(team): Reader,
    Sandbox(id): Sandbox,
    query: Query,
) -> Result<Response> {
    let start = query.integer("start")?.unwrap_or(0);
    let limit = query.integer_in("limit", 0..=i64::MAX, MAX_ENTRIES)?;
    let mut entries = app.sandboxes().log(&team, &id).await?;
    entries.retain(|entry| entry.timestamp.as_millisecond() >= start);
    entries.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let logs = SandboxLogs { logs: entries.iter().map(line).collect(), log_entries: entries };
    Ok(body::json(StatusCode::OK, &logs))
}

/// Lists entries from `cursor` on, in either direction.
pub(super) async fn v2(
    State(app): State<App>,
    Reader(team): Reader,
    Sandbox(id): Sandbox,
    query: Query,
) -> Result<Response> {
    let limit = query.integer_in("limit", 0..=MAX_ENTRIES, MAX_ENTRIES)?;
    let cursor = query.integer("cursor")?;
    let forward = match query.text("direction") {
        None | Some("backward") => false,
        Some("forward") => true,
        Some(_) => return Err(invalid("direction", "must be forward or backward")),
    };
    let min_level = level(&query)?;
    let search = query.text("search").unwrap_or_default();
    if search.chars().count() > MAX_SEARCH {
        return Err(invalid("search", "must be at most 256 characters"));
    }
    let mut entries = app.sandboxes().log(&team, &id).await?;
    entries.retain(|entry| {
        let time = entry.timestamp.as_millisecond();
        let in_reach = cursor.is_none_or(|cursor| if forward { time >= cursor } else { time <= cursor });
        in_reach && min_level.is_none_or(|min| entry.level >= min) && entry.message.contains(search)
    });
    if !forward {
        entries.reverse();
    }
    entries.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(body::json(StatusCode::OK, &SandboxLogsV2 { logs: entries }))
}

/// An entry as the first version shows it: the CLI parses the text of a line as JSON.
fn line(entry: &LogEntry) -> LogLine {
    let mut line = json!({ "level": entry.level, "message": entry.message });
    for (name, value) in &entry.fields {
        line[name] = json!(value);
    }
    LogLine { timestamp: entry.timestamp, line: line.to_string() }
}

/// The minimum severity that a query asks for.
pub(super) fn level(query: &Query) -> Result<Option<LogLevel>> {
    match query.text("level") {
        None => Ok(None),
        Some("debug") => Ok(Some(LogLevel::Debug)),
        Some("info") => Ok(Some(LogLevel::Info)),
        Some("warn") => Ok(Some(LogLevel::Warn)),
        Some("error") => Ok(Some(LogLevel::Error)),
        Some(_) => Err(invalid("level", "must be debug, info, warn or error")),
    }
}
