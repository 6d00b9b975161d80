//! `sandcove sandbox list`.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use sandcove_client::{Client, ListFilter};
use sandcove_wire::api::sandbox::{KeptMemory, ListedSandbox, MemoryPlace, State};
use serde_json::json;

use super::variable;
use crate::output::{self, out};
use crate::table::table;

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// only sandboxes in this state
    #[arg(long, value_enum)]
    state: Option<StateName>,
    /// only sandboxes of this template, by name or id
    #[arg(short, long)]
    template: Option<String>,
    /// only sandboxes with this metadata; repeatable
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
    metadata: Vec<(String, String)>,
    /// print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StateName {
    Running,
    Paused,
}

/// Prints one line for each sandbox, newest first.
pub async fn list(client: &Client, args: ListArgs) -> Result<ExitCode> {
    let state = args.state.map(|state| match state {
        StateName::Running => State::Running,
        StateName::Paused => State::Paused,
    });
    let filter = ListFilter { state, metadata: args.metadata.into_iter().collect() };
    let mut sandboxes = client.list_where(&filter).await?;
    if let Some(template) = &args.template {
        sandboxes.retain(|sandbox| sandbox.alias == *template || sandbox.template_id == *template);
    }
    if args.json {
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
