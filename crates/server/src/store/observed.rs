//! Logs and samples of sandboxes: log entries, and samples by the minute. Kept for a week, also of removed sandboxes, and up to
//! a maximum number of rows of all sandboxes together: the oldest are deleted first.

use jiff::Timestamp;
use sandcove_wire::api::observe::{LogEntry, SandboxMetric};
use sandcove_wire::id::SandboxId;
use serde::{Deserialize, Serialize};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{Store, corrupt, json};
use crate::{Result, clock};

const WEEK_MICROS: i64 = 7 * 24 * 3600 * 1_000_000;
/// Maximum number of entries of all sandboxes; a row has about 300 bytes.
const MAX_ENTRIES: i64 = 1_000_000;
/// Maximum number of rows of samples of all sandboxes, each of a minute; a row has about a kilobyte.
const MAX_MINUTES: i64 = 500_000;
/// Maximum number of entries returned of one sandbox, the newest.
const MAX_RETURNED: i64 = 1000;

/// Logs and samples of one sandbox since they were last stored.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) team: Uuid,
    pub(crate) sandbox: SandboxId,
    pub(crate) logs: Vec<LogEntry>,
    pub(crate) samples: Vec<SandboxMetric>,
}

/// The samples of a minute as they are stored: values that all of them share are written once.
#[derive(Serialize, Deserialize)]
struct Minute {
    cpu_count: u32,
    mem_total: u64,
    disk_total: u64,
    /// Time in microseconds, CPU percent, memory, cached files, disk.
    points: Vec<(i64, f64, u64, u64, u64)>,
}

impl Store {
    /// Inserts logs and samples.
    pub(crate) async fn insert_observed(&self, seen: &[Observed]) -> Result<()> {
        let mut transaction = self.write.begin().await?;
        for one in seen {
            for entry in &one.logs {
                sqlx::query(
                    "INSERT INTO sandbox_logs (team_id, sandbox_id, timestamp, entry) VALUES ($1, $2, $3, $4)",
                )
                .bind(one.team.to_string())
                .bind(one.sandbox.as_str())
                .bind(entry.timestamp.as_microsecond())
                .bind(json(entry)?)
                .execute(&mut *transaction)
                .await?;
            }
            if let Some(last) = one.samples.last() {
                sqlx::query(
                    "INSERT INTO sandbox_readings (team_id, sandbox_id, timestamp, readings) \
                     VALUES ($1, $2, $3, $4)",
                )
                .bind(one.team.to_string())
                .bind(one.sandbox.as_str())
                .bind(last.timestamp.as_microsecond())
                .bind(json(&minute(&one.samples, last))?)
                .execute(&mut *transaction)
                .await?;
            }
        }
        Ok(transaction.commit().await?)
    }

    /// Log entries of a sandbox of the team, oldest first.
    pub(crate) async fn log_entries(&self, team: Uuid, id: &SandboxId) -> Result<Vec<LogEntry>> {
        let rows = sqlx::query(
            "SELECT entry FROM sandbox_logs WHERE sandbox_id = $1 AND team_id = $2 AND timestamp >= $3 \
             ORDER BY id DESC LIMIT $4",
        )
        .bind(id.as_str())
        .bind(team.to_string())
        .bind(oldest())
        .bind(MAX_RETURNED)
        .fetch_all(&self.read)
        .await?;
        let entry = |row: &SqliteRow| {
            serde_json::from_str(&row.try_get::<String, _>("entry")?)
                .map_err(corrupt("log entry", id.as_str()))
        };
        rows.iter().rev().map(entry).collect()
    }

    /// Samples of a sandbox of the team from `start` on (Unix seconds), oldest first, and a few before.
    pub(crate) async fn samples(&self, team: Uuid, id: &SandboxId, start: i64) -> Result<Vec<SandboxMetric>> {
        let rows = sqlx::query(
            "SELECT readings FROM sandbox_readings WHERE sandbox_id = $1 AND team_id = $2 AND timestamp >= $3 \
             ORDER BY timestamp",
        )
        .bind(id.as_str())
        .bind(team.to_string())
        .bind(start.saturating_mul(1_000_000).max(oldest()))
        .fetch_all(&self.read)
        .await?;
        let mut samples = Vec::new();
        for row in &rows {
            let text: String = row.try_get("readings")?;
            let minute: Minute = serde_json::from_str(&text).map_err(corrupt("sample", id.as_str()))?;
            samples.extend(minute.points.iter().map(|point| sample(&minute, *point)));
        }
        Ok(samples)
    }

    /// Deletes entries and samples that are too old, and the oldest beyond the maximum number of rows.
    pub(crate) async fn delete_old_observed(&self) -> Result<()> {
        for (table, max) in [("sandbox_logs", MAX_ENTRIES), ("sandbox_readings", MAX_MINUTES)] {
            // Ids only grow, so the newest one bounds how many rows are left.
            let sql = format!(
                "DELETE FROM {table} WHERE timestamp < $1 OR id <= (SELECT MAX(id) FROM {table}) - $2"
            );
            sqlx::query(sqlx::AssertSqlSafe(sql)).bind(oldest()).bind(max).execute(&self.write).await?;
        }
        Ok(())
    }
}

fn oldest() -> i64 {
    clock::now().as_microsecond() - WEEK_MICROS
}

fn minute(samples: &[SandboxMetric], last: &SandboxMetric) -> Minute {
    let point = |one: &SandboxMetric| {
        let time = one.timestamp.as_microsecond();
        (time, one.cpu_used_pct, one.mem_used, one.mem_cache, one.disk_used)
    };
    Minute {
        cpu_count: last.cpu_count,
        mem_total: last.mem_total,
        disk_total: last.disk_total,
        points: samples.iter().map(point).collect(),
    }
}

fn sample(minute: &Minute, point: (i64, f64, u64, u64, u64)) -> SandboxMetric {
    let (time, cpu_used_pct, mem_used, mem_cache, disk_used) = point;
    let timestamp: Timestamp = clock::from_micros(time);
    SandboxMetric {
        timestamp,
        timestamp_unix: timestamp.as_second(),
        cpu_count: minute.cpu_count,
        cpu_used_pct,
        mem_used,
        mem_total: minute.mem_total,
        mem_cache,
        disk_used,
        disk_total: minute.disk_total,
    }
}
