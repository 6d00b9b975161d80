//! `sandcove snapshot`, which is also `sandcove sandbox snapshot`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use sandcove_client::Client;
use sandcove_wire::id::SandboxId;
use serde_json::json;

use super::candidates;
use super::done::Done;
use super::first;
use super::format::Format;
use super::reach::{Place, Reach};
use crate::output::{self, note, out};
use crate::table::table;

/// Subcommands of `snapshot`.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// take a snapshot of a sandbox, which goes on, and print its id
    #[command(alias = "cr")]
    Create {
        /// id of the sandbox
        #[arg(add = candidates::sandboxes())]
        id: SandboxId,
        /// name for the snapshot
        #[arg(short, long)]
        name: Option<String>,
        /// keep only the files, not the processes
        #[arg(long)]
        files_only: bool,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// list snapshots, newest first
    #[command(visible_alias = "ls")]
    List(SnapshotListArgs),
    /// delete snapshots
    #[command(alias = "dl")]
    Delete {
        /// ids or names of snapshots
        #[arg(required = true)]
        #[arg(add = candidates::snapshots())]
        snapshots: Vec<String>,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `sandcove snapshot`.
#[derive(Debug, Args)]
pub struct SnapshotArgs {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    command: SnapshotCommand,
}

/// Runs a subcommand of `sandcove snapshot`.
pub async fn top_level(place: Place, args: SnapshotArgs) -> Result<ExitCode> {
    snapshot(&args.reach.client(&place)?, args.command).await
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct SnapshotListArgs {
    /// only snapshots of this sandbox
    #[arg(add = candidates::sandboxes())]
    id: Option<SandboxId>,
    /// only snapshots with this name
    #[arg(short, long)]
    name: Option<String>,
    /// maximum number of snapshots to list; 0 for all
    #[arg(short, long, default_value_t = 0, value_name = "N")]
    limit: usize,
    #[command(flatten)]
    format: Format,
}

/// Runs the subcommand.
pub async fn snapshot(client: &Client, command: SnapshotCommand) -> Result<ExitCode> {
    match command {
        SnapshotCommand::Create { id, name, files_only, json } => {
            let taken = client.snapshot(&id, name.as_deref(), !files_only).await;
            let taken = taken
                .with_context(|| format!("failed to take a snapshot of `{id}`, which has to be running"))?;
            match json {
                true => out!("{}", json!(taken)),
                false => out!("{}", taken.snapshot_id),
            }
            Ok(ExitCode::SUCCESS)
        }
        SnapshotCommand::List(args) => list(client, args).await,
        SnapshotCommand::Delete { snapshots, json } => delete(client, &snapshots, json).await,
    }
}

async fn list(client: &Client, args: SnapshotListArgs) -> Result<ExitCode> {
    let snapshots = client.snapshots(args.id.as_ref(), args.name.as_deref()).await?;
    let snapshots = first(snapshots, args.limit);
    if args.format.is_json() {
        out!("{}", json!(snapshots));
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> =
        snapshots.into_iter().map(|snapshot| [snapshot.snapshot_id, snapshot.names.join(" ")]).collect();
    let _ = output::write(table(["id", "names"], &rows).as_bytes());
    Ok(ExitCode::SUCCESS)
}

async fn delete(client: &Client, snapshots: &[String], as_json: bool) -> Result<ExitCode> {
    let mut done = Done::new(as_json);
    let mut code = ExitCode::SUCCESS;
    for snapshot in snapshots {
        match client.delete_snapshot(snapshot).await {
            Ok(true) => done.add(snapshot, json!({ "snapshotID": snapshot })),
            Ok(false) => {
                note!("error: unknown snapshot `{snapshot}`\nhint: `sandcove snapshot list` shows all");
                code = ExitCode::FAILURE;
            }
            Err(error) => {
                note!("error: failed to delete snapshot {snapshot}: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}
