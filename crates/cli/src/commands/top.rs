//! `sandcove top`: what the sandboxes of a team use, again and again.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use sandcove_client::Client;
use sandcove_wire::api::observe::SandboxMetric;
use sandcove_wire::api::sandbox::{ListedSandbox, State};
use sandcove_wire::id::SandboxId;
use serde_json::json;

use super::reach::{Place, Reach};
use crate::output::{self, out};
use crate::signals::Signals;
use crate::table::table;
use crate::terminal::{self, RawMode};

/// Sandboxes whose samples one request may ask for.
const PAGE: usize = 100;
const MIB: u64 = 1 << 20;

/// The alternate screen without a cursor, and the way back.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";
/// The cursor at the upper left; what is right of it in its line, and below it, is cleared.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Arguments of `top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Keys: c, m, d and a sort by processor, memory, disk and age; q or Ctrl-C ends the view."
)]
pub struct TopArgs {
    #[command(flatten)]
    reach: Reach,
    /// column to sort by
    #[arg(short, long, value_enum, default_value = "cpu")]
    sort: Sort,
    /// seconds between updates
    #[arg(short, long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: u32,
    /// print one table and end
    #[arg(long)]
    once: bool,
    /// print the sandboxes with their newest samples as JSON, and end
    #[arg(long)]
    json: bool,
}

/// The order of the sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    Cpu,
    Memory,
    Disk,
    Age,
}

/// A sandbox and its newest sample.
struct Row {
    sandbox: ListedSandbox,
    sample: Option<SandboxMetric>,
}

/// Shows the sandboxes until the user has seen enough.
pub async fn top(place: Place, args: TopArgs) -> Result<ExitCode> {
    let client = args.reach.client(&place)?;
    if args.json {
        let rows = rows(&client, args.sort).await?;
        let rows: Vec<_> =
            rows.iter().map(|row| json!({ "sandbox": row.sandbox, "metrics": row.sample })).collect();
        out!("{}", json!(rows));
        return Ok(ExitCode::SUCCESS);
    }
    if args.once {
        let text = shown(&rows(&client, args.sort).await?, Timestamp::now());
        let _ = output::write(text.as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    if !std::io::stdout().is_terminal() {
        bail!(
            "`top` needs a terminal\nhint: `sandcove top --once` prints one table, and --json one document"
        );
    }
    // An error before the first screen is shown as that of any command.
    let first = rows(&client, args.sort).await?;
    let mut signals = Signals::catch()?;
    let raw = RawMode::enter();
    let _ = output::write(ENTER);
    let outcome = live(&client, &args, first, &mut signals).await;
    let _ = output::write(LEAVE);
    drop(raw);
    outcome
}

async fn live(
    client: &Client,
    args: &TopArgs,
    mut rows: Vec<Row>,
    signals: &mut Signals,
) -> Result<ExitCode> {
    let mut sort = args.sort;
    let mut problem = None;
    let mut keys = terminal::stdin();
    let mut keys_are_open = true;
    let mut resized = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::window_change())?;
    let mut ticks = tokio::time::interval(Duration::from_secs(args.interval.into()));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        order(&mut rows, sort);
        if output::write(screen(&rows, client.url(), problem.as_deref()).as_bytes()).is_err() {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            _ = ticks.tick() => match self::rows(client, sort).await {
                Ok(new) => (rows, problem) = (new, None),
                // The server may come back.
                Err(error) => problem = Some(error.to_string()),
            },
            _ = resized.recv() => {}
            signal = signals.next() => return Ok(signal.status().into()),
            typed = keys.recv(), if keys_are_open => match typed {
                None => keys_are_open = false,
                Some(typed) => for key in typed {
                    match key {
                        b'q' | b'Q' | 3 | 4 => return Ok(ExitCode::SUCCESS),
                        b'c' => sort = Sort::Cpu,
                        b'm' => sort = Sort::Memory,
                        b'd' => sort = Sort::Disk,
                        b'a' => sort = Sort::Age,
                        _ => {}
                    }
                },
            },
        }
    }
}

async fn rows(client: &Client, sort: Sort) -> sandcove_client::Result<Vec<Row>> {
    let sandboxes = client.list().await?;
    let running: Vec<SandboxId> = sandboxes
        .iter()
        .filter(|sandbox| sandbox.state == State::Running)
        .map(|sandbox| sandbox.sandbox_id.clone())
        .collect();
    let mut samples = BTreeMap::new();
    for page in running.chunks(PAGE) {
        samples.extend(client.latest_metrics(page).await?.sandboxes);
    }
    let with = |sandbox: ListedSandbox| Row { sample: samples.remove(sandbox.sandbox_id.as_str()), sandbox };
    let mut rows: Vec<Row> = sandboxes.into_iter().map(with).collect();
    order(&mut rows, sort);
    Ok(rows)
}

/// Sorts by what is used most, or by age; sandboxes without a sample come last.
fn order(rows: &mut [Row], sort: Sort) {
    rows.sort_by_key(|row| {
        let used = |read: fn(&SandboxMetric) -> u64| row.sample.as_ref().map_or(0, read);
        let first = match sort {
            // Tenths of a percent are what is shown.
            Sort::Cpu => used(|sample| (sample.cpu_used_pct * 10.0) as u64),
            Sort::Memory => used(|sample| sample.mem_used),
            Sort::Disk => used(|sample| sample.disk_used),
            Sort::Age => 0,
        };
        (Reverse(row.sample.is_some() && sort != Sort::Age), Reverse(first), row.sandbox.started_at)
    });
}

fn shown(rows: &[Row], now: Timestamp) -> String {
    let cells: Vec<_> = rows.iter().map(|row| cells(row, now)).collect();
    table(["id", "template", "state", "cpu", "memory", "disk", "age", "left"], &cells)
}

fn cells(Row { sandbox, sample }: &Row, now: Timestamp) -> [String; 8] {
    let template = if sandbox.alias.is_empty() { &sandbox.template_id } else { &sandbox.alias };
    let state = match sandbox.state {
        State::Running => "running",
        State::Paused => "paused",
    };
    let share = |used: u64, total: u64| format!("{} / {} MiB", used / MIB, total / MIB);
    let [cpu, memory, disk] = sample.map_or_else(
        || ["-"; 3].map(str::to_owned),
        |sample| {
            [
                format!("{:.1} % of {}", sample.cpu_used_pct, sample.cpu_count),
                share(sample.mem_used, sample.mem_total),
                share(sample.disk_used, sample.disk_total),
            ]
        },
    );
    let left = match sandbox.state {
        State::Running => duration(sandbox.end_at.as_second() - now.as_second()),
        State::Paused => "-".to_owned(),
    };
    let age = duration(now.as_second() - sandbox.started_at.as_second());
    [sandbox.sandbox_id.to_string(), template.clone(), state.to_owned(), cpu, memory, disk, age, left]
}

/// Seconds in their two largest units.
fn duration(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

/// A whole screen: a line about all sandboxes, and as many of them as there is room for.
fn screen(rows: &[Row], server: &str, problem: Option<&str>) -> String {
    let size = terminal::size();
    let (width, height) = (usize::from(size.columns), usize::from(size.rows));
    let running = rows.iter().filter(|row| row.sandbox.state == State::Running).count();
    let samples = || rows.iter().filter_map(|row| row.sample.as_ref());
    let heading = format!(
        "{server}  {running} running, {} paused  cpu {:.0} %  memory {} MiB",
        rows.len() - running,
        samples().map(|sample| sample.cpu_used_pct).sum::<f64>(),
        samples().map(|sample| sample.mem_used).sum::<u64>() / MIB,
    );
    let second = problem.map_or_else(String::new, |problem| format!("error: {problem}"));
    let body = shown(rows, Timestamp::now());
    let lines = [heading.as_str(), second.as_str()].into_iter().chain(body.lines()).take(height.max(1));
    // Names and messages of others must not move the cursor.
    let cut = |line: &str| line.chars().filter(|letter| !letter.is_control()).take(width).collect::<String>();
    let lines: Vec<String> = lines.map(|line| format!("{}{CLEAR_LINE}", cut(line))).collect();
    format!("{HOME}{}{CLEAR_BELOW}", lines.join("\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        let all = [-5, 9, 75, 3700, 90_000].map(duration);
        assert_eq!(all, ["0 s", "9 s", "1 min 15 s", "1 h 1 min", "1 d 1 h"]);
    }
}
