//! Metrics and logs (contract: control-plane, section 8).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A sample of the resource usage of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxMetric {
    /// Time of the sample.
    pub timestamp: Timestamp,
    /// Time of the sample, in Unix seconds.
    pub timestamp_unix: i64,
    /// Number of CPUs.
    pub cpu_count: u32,
    /// CPU usage in percent of one CPU: 200 is two busy CPUs.
    pub cpu_used_pct: f64,
    /// Used memory without cache, in bytes.
    pub mem_used: u64,
    /// Total memory, in bytes.
    pub mem_total: u64,
    /// Memory of the page cache, in bytes.
    pub mem_cache: u64,
    /// Used disk space, in bytes.
    pub disk_used: u64,
    /// Total disk space, in bytes.
    pub disk_total: u64,
}

/// Answer of `GET /sandboxes/metrics`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LatestMetrics {
    /// Newest sample of each sandbox that has one.
    pub sandboxes: BTreeMap<String, SandboxMetric>,
}

/// The severity of a log entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Details for debugging.
    Debug,
    /// Normal operation.
    Info,
    /// A problem that someone should look at.
    Warn,
    /// A failure.
    Error,
}

/// An entry of a sandbox log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Time of the entry.
    pub timestamp: Timestamp,
    /// Severity of the entry.
    pub level: LogLevel,
    /// Text of the entry.
    pub message: String,
    /// Further fields.
    pub fields: BTreeMap<String, String>,
}

/// An entry of a sandbox log as text; the CLI parses `line` as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Time of the entry.
    pub timestamp: Timestamp,
    /// JSON object with `level`, `logger`, `message`.
    pub line: String,
}

/// Answer of `GET /sandboxes/{id}/logs`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxLogs {
    /// Entries as text, the oldest first.
    pub logs: Vec<LogLine>,
    /// Structured form of the same entries.
    pub log_entries: Vec<LogEntry>,
}

/// Answer of `GET /v2/sandboxes/{id}/logs`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SandboxLogsV2 {
    /// Entries in the requested direction.
    pub logs: Vec<LogEntry>,
}

/// A sample of the activity of a team.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TeamMetric {
    /// Time of the sample.
    pub timestamp: Timestamp,
    /// Time of the sample, in Unix seconds.
    pub timestamp_unix: i64,
    /// Number of concurrent sandboxes.
    pub concurrent_sandboxes: i64,
    /// Number of sandboxes started per second.
    pub sandbox_start_rate: f64,
}

/// The maximum of a metric of a team.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TeamMetricMax {
    /// Time of the sample.
    pub timestamp: Timestamp,
    /// Time of the sample, in Unix seconds.
    pub timestamp_unix: i64,
    /// Value of the metric.
    pub value: f64,
}

/// Answer of `GET /sandboxes/{id}/egress`, a call of this server's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressLog {
    /// Last connections through the egress proxy, the oldest first.
    pub connections: Vec<EgressConnection>,
}

/// A connection of a sandbox through its egress proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EgressConnection {
    /// Number of the connection; later ones have higher numbers.
    pub number: u64,
    /// Time of the connection.
    pub began_at: Timestamp,
    /// Time of its end; none while it is open.
    pub ended_at: Option<Timestamp>,
    /// Name of the host, if the connection names one.
    pub host: Option<String>,
    /// Address that the sandbox dialled.
    pub address: String,
    /// Port that the sandbox dialled.
    pub port: u16,
    /// Whether the rules allow the connection.
    pub allowed: bool,
    /// Entry of the network rules that decided, if one speaks of the connection.
    pub rule: Option<EgressRule>,
    /// Whether the connection goes through the sandbox's `egressProxy`.
    pub proxied: bool,
    /// Whether a header rule is for the host.
    pub transformed: bool,
    /// The reason for which the connection was refused, failed or cut.
    pub error: Option<String>,
    /// Bytes that the sandbox has sent.
    pub sent_bytes: u64,
    /// Bytes that the sandbox has received.
    pub received_bytes: u64,
}

/// An entry of network rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRule {
    /// List of the entry, `allowOut` or `denyOut`.
    pub list: String,
    /// The entry.
    pub entry: String,
}
