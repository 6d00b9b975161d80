//! `sandcove sandbox logs` and `metrics`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use sandcove_client::Client;
use sandcove_wire::api::observe::{LogEntry, LogLevel, SandboxMetric};
use sandcove_wire::id::SandboxId;
use serde_json::json;

use super::candidates;
use super::exec::is_gone;
use crate::output::{self, Closed};

/// Pause between two questions for what is new.
const POLL: Duration = Duration::from_millis(500);

/// Bytes of a mebibyte.
const MIB: u64 = 1 << 20;

/// Arguments of `logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// id of the sandbox, which may have ended up to a week ago
    #[arg(add = candidates::sandboxes())]
    id: SandboxId,
    /// keep printing new entries until the sandbox ends
    #[arg(short, long)]
    follow: bool,
    /// lowest severity to print
    #[arg(long, value_enum, default_value = "info", ignore_case = true)]
    level: Level,
    /// only entries whose field `logger` begins with one of these; several separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    loggers: Vec<String>,
    /// print each entry as JSON, one on a line
    #[arg(long)]
    json: bool,
    /// `json` or `pretty`, as the E2B CLI takes it
    #[arg(long, hide = true, conflicts_with = "json", value_parser = is_json)]
    format: Option<bool>,
}

/// Severity of a log entry.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

impl From<Level> for LogLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::Debug => Self::Debug,
            Level::Info => Self::Info,
            Level::Warn => Self::Warn,
            Level::Error => Self::Error,
        }
    }
}

/// Position in a log: what is older than `time`, in milliseconds, was printed, and so were `seen` entries of that time.
#[derive(Debug, Default)]
struct Position {
    time: i64,
    seen: usize,
}

impl Position {
    /// The entries that were not printed, of those from `time` on. They count as printed now.
    fn advance(&mut self, entries: Vec<LogEntry>) -> impl Iterator<Item = LogEntry> {
        let known = self.seen;
        for entry in entries.iter().skip(known) {
            let time = entry.timestamp.as_millisecond();
            if time > self.time {
                *self = Self { time, seen: 0 };
            }
            self.seen += 1;
        }
        entries.into_iter().skip(known)
    }
}

/// Prints the log of a sandbox.
pub async fn logs(client: &Client, args: LogsArgs) -> Result<ExitCode> {
    let mut position = Position::default();
    loop {
        // Asked before the log, so that nothing is missed that the sandbox wrote before it ended.
        let gone = !args.follow || is_gone(client, &args.id).await;
        let from = Timestamp::from_millisecond(position.time)?;
        let entries = client.logs(&args.id, from, args.level.into()).await?;
        let (found, known) = (entries.len(), position.seen);
        if found == 0 && gone && position.time == 0 && is_gone(client, &args.id).await {
            bail!(
                "sandbox {} is unknown, or nothing is in its log\nhint: `sandcove sandbox list` shows all",
                args.id
            );
        }
        for entry in position.advance(entries).filter(|entry| is_of(entry, &args.loggers)) {
            if print(&entry, args.json || args.format == Some(true)).is_err() {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if found > known {
            continue;
        }
        if gone {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Whether an entry is of one of the loggers; without loggers, all are.
fn is_of(entry: &LogEntry, loggers: &[String]) -> bool {
    let logger = entry.fields.get("logger").map_or("", String::as_str);
    loggers.is_empty() || loggers.iter().any(|wanted| logger.starts_with(wanted))
}

fn print(entry: &LogEntry, is_json: bool) -> Result<(), Closed> {
    if is_json {
        return output::write(format!("{}\n", json!(entry)).as_bytes());
    }
    let level = match entry.level {
        LogLevel::Debug => "DEBUG",
        LogLevel::Info => "INFO ",
        LogLevel::Warn => "WARN ",
        LogLevel::Error => "ERROR",
    };
    let fields: Vec<String> = entry
        .fields
        .iter()
        .filter(|(name, _)| *name != "logger")
        .map(|(name, value)| format!(" {name}={value}"))
        .collect();
    let line = format!("{:.3} {level} {}{}\n", entry.timestamp, entry.message.trim_end(), fields.concat());
    output::write(output::plain(&line).as_bytes())
}

fn is_json(format: &str) -> Result<bool, String> {
    match format {
        "json" => Ok(true),
        "pretty" => Ok(false),
        other => Err(format!("unknown format `{other}`; use json or pretty")),
    }
}

/// Arguments of `metrics`.
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// id of the sandbox
    #[arg(add = candidates::sandboxes())]
    id: SandboxId,
    /// keep printing new samples until the sandbox ends
    #[arg(short, long)]
    follow: bool,
    /// print each sample as JSON, one on a line
    #[arg(long)]
    json: bool,
    /// `json` or `pretty`, as the E2B CLI takes it
    #[arg(long, hide = true, conflicts_with = "json", value_parser = is_json)]
    format: Option<bool>,
}

/// Prints the samples of a sandbox's resource usage.
pub async fn metrics(client: &Client, args: MetricsArgs) -> Result<ExitCode> {
    let mut last = None;
    loop {
        let samples = client.metrics(&args.id, last, None).await?;
        let before = last;
        for sample in &samples {
            if last.is_some_and(|last| sample.timestamp <= last) {
                continue;
            }
            last = Some(sample.timestamp);
            let line = match args.json || args.format == Some(true) {
                true => json!(sample).to_string(),
                false => shown(sample),
            };
            if output::write(format!("{line}\n").as_bytes()).is_err() {
                return Ok(ExitCode::SUCCESS);
            }
        }
        let gone = last == before && is_gone(client, &args.id).await;
        if gone && last.is_none() {
            bail!("sandbox {} is unknown\nhint: `sandcove sandbox list` shows all", args.id);
        }
        if gone || !args.follow {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(POLL).await;
    }
}

fn shown(sample: &SandboxMetric) -> String {
    let SandboxMetric { timestamp, cpu_used_pct, cpu_count, .. } = sample;
    let share = |used: u64, total: u64| format!("{} / {} MiB", used / MIB, total / MIB);
    let memory = share(sample.mem_used, sample.mem_total);
    let disk = share(sample.disk_used, sample.disk_total);
    format!("{timestamp:.0}  cpu {cpu_used_pct:.1} % of {cpu_count}  memory {memory}  disk {disk}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn entry(time: i64, message: &str) -> LogEntry {
        let timestamp = Timestamp::from_millisecond(time).unwrap();
        LogEntry { timestamp, level: LogLevel::Info, message: message.to_owned(), fields: BTreeMap::new() }
    }

    #[test]
    fn entries_of_one_moment_are_printed_once_each() {
        let mut position = Position::default();
        let mut new = |entries: &[(i64, &str)]| {
            let entries = entries.iter().map(|(time, message)| entry(*time, message)).collect();
            position.advance(entries).map(|entry| entry.message).collect::<Vec<_>>()
        };
        assert_eq!(new(&[(1, "a"), (2, "b")]), ["a", "b"]);
        assert_eq!(new(&[(2, "b"), (2, "c")]), ["c"]);
        assert_eq!(new(&[(2, "b"), (2, "c")]), [""; 0]);
        assert_eq!(new(&[(2, "b"), (2, "c"), (3, "d"), (3, "e")]), ["d", "e"]);
        assert_eq!(new(&[(3, "d"), (3, "e"), (3, "f")]), ["f"]);
    }
}
