//! Metrics and logs (contract: control-plane, section 8).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One reading of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxMetric {
    /// When.
    pub timestamp: Timestamp,
    /// When, Unix seconds.
    pub timestamp_unix: i64,
    /// Whole CPUs.
    pub cpu_count: u32,
    /// Of one CPU, percent: 200 is two CPUs busy.
    pub cpu_used_pct: f64,
    /// Bytes.
    pub mem_used: u64,
    /// Bytes.
    pub mem_total: u64,
    /// Bytes.
    pub mem_cache: u64,
    /// Bytes.
    pub disk_used: u64,
    /// Bytes.
    pub disk_total: u64,
}

/// Answer of `GET /sandboxes/metrics`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LatestMetrics {
    /// The newest reading of each sandbox that has one.
    pub sandboxes: BTreeMap<String, SandboxMetric>,
}

/// How serious a log entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Detail.
    Debug,
    /// Normal.
    Info,
    /// Someone should look.
    Warn,
    /// Something failed.
    Error,
}

/// One log entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// When.
    pub timestamp: Timestamp,
    /// How serious.
    pub level: LogLevel,
    /// What.
    pub message: String,
    /// More about it.
    pub fields: BTreeMap<String, String>,
}

/// One log entry as text; the CLI parses `line` as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When.
    pub timestamp: Timestamp,
    /// A JSON object with `level`, `logger`, `message`.
    pub line: String,
}

/// Answer of `GET /sandboxes/{id}/logs`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxLogs {
    /// Oldest first.
    pub logs: Vec<LogLine>,
    /// The same entries, structured.
    pub log_entries: Vec<LogEntry>,
}

/// Answer of `GET /v2/sandboxes/{id}/logs`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SandboxLogsV2 {
    /// In the direction asked for.
    pub logs: Vec<LogEntry>,
}

/// How busy a team was at one time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TeamMetric {
    /// When.
    pub timestamp: Timestamp,
    /// When, Unix seconds.
    pub timestamp_unix: i64,
    /// Sandboxes that ran at once.
    pub concurrent_sandboxes: i64,
    /// Sandboxes started a second.
    pub sandbox_start_rate: f64,
}

/// When a team was busiest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TeamMetricMax {
    /// When.
    pub timestamp: Timestamp,
    /// When, Unix seconds.
    pub timestamp_unix: i64,
    /// How busy, as the metric counts.
    pub value: f64,
}
