//! `sandcove sandbox list`.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use sandcove_client::{Client, ListFilter};
use sandcove_wire::api::sandbox::{KeptMemory, ListedSandbox, MemoryPlace, State};
use serde_json::json;

use super::candidates;
use super::format::Format;
use super::{first, variable};
use crate::output::{self, out};
use crate::table::table;

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    which: Which,
    /// only sandboxes of this template, by name or id
    #[arg(short, long)]
    #[arg(add = candidates::templates())]
    template: Option<String>,
    /// only sandboxes that started at this time or later, as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    started_after: Option<Timestamp>,
    /// order of the start times
    #[arg(short, long, value_enum, default_value = "desc")]
    order: Order,
    /// maximum number of sandboxes to list; 0 for all
    #[arg(short, long, default_value_t = 0, value_name = "N")]
    limit: usize,
    #[command(flatten)]
    format: Format,
}

/// Sandboxes of a team, by what they are.
#[derive(Debug, Args)]
pub struct Which {
    /// only sandboxes in this state; several separated by commas
    #[arg(short, long, value_enum, value_delimiter = ',')]
    state: Vec<StateName>,
    /// only sandboxes with this metadata; repeatable
    #[arg(short, long, value_name = "NAME=VALUE", value_delimiter = ',', value_parser = variable)]
    metadata: Vec<(String, String)>,
}

impl Which {
    /// The filter that a list takes.
    pub fn filter(self) -> ListFilter {
        let [running, paused] =
            [StateName::Running, StateName::Paused].map(|name| self.state.contains(&name));
        let state = match (running, paused) {
            (true, false) => Some(State::Running),
            (false, true) => Some(State::Paused),
            _ => None,
        };
        ListFilter { state, metadata: self.metadata.into_iter().collect(), ..Default::default() }
    }

    /// Limits the filter to sandboxes that run, where no state is named.
    pub fn or_running(mut self) -> Self {
        if self.state.is_empty() {
            self.state.push(StateName::Running);
        }
        self
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    /// oldest first
    Asc,
    /// newest first
    Desc,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StateName {
    Running,
    Paused,
}

/// Prints one line for each sandbox.
pub async fn list(client: &Client, args: ListArgs) -> Result<ExitCode> {
    let (template, started_after) = (args.template, args.started_after);
    let filter = ListFilter { template, started_after, ..args.which.filter() };
    let mut sandboxes = client.list_where(&filter).await?;
    if args.order == Order::Asc {
        sandboxes.reverse();
    }
    let sandboxes = first(sandboxes, args.limit);
    if args.format.is_json() {
        out!("{}", json!(sandboxes));
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = sandboxes.iter().map(row).collect();
    let header = ["id", "template", "state", "cpus", "memory", "started", "ends", "metadata"];
    let _ = output::write(table(header, &rows).as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn row(sandbox: &ListedSandbox) -> [String; 8] {
    let template = if sandbox.alias.is_empty() { &sandbox.template_id } else { &sandbox.alias };
    let state = match (sandbox.state, sandbox.kept_memory) {
        (State::Running, _) => "running".to_owned(),
        (State::Paused, None) => "paused, files".to_owned(),
        (State::Paused, Some(KeptMemory { place, bytes })) => {
            let place = match place {
                MemoryPlace::Host => "in memory",
                MemoryPlace::Disk => "on disk",
            };
            format!("paused, {} MiB {place}", bytes.div_ceil(1 << 20))
        }
    };
    let metadata: Vec<String> =
        sandbox.metadata.iter().map(|(name, value)| format!("{name}={value}")).collect();
    [
        sandbox.sandbox_id.to_string(),
        template.clone(),
        state,
        sandbox.cpu_count.to_string(),
        format!("{} MiB", sandbox.memory_mb),
        format!("{:.0}", sandbox.started_at),
        format!("{:.0}", sandbox.end_at),
        metadata.join(" "),
    ]
}
