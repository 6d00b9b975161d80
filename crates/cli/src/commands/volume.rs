//! `sandcove volume`.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use sandcove_client::Client;
use sandcove_wire::api::volume::{Volume, VolumeAndToken};
use serde_json::json;

use super::candidates;
use super::done::Done;
use super::reach::{Place, Reach};
use crate::output::{self, note, out};
use crate::table::table;

/// Arguments of `volume`.
#[derive(Debug, Args)]
pub struct VolumeArgs {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    command: VolumeCommand,
}

/// Subcommands of `volume`.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// create an empty volume, and print its id
    Create {
        /// name of the volume, which `sandbox create --volume` takes
        name: String,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// list volumes
    #[command(visible_alias = "ls")]
    List {
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// delete volumes with all files in them, and print their ids
    Delete {
        /// names or ids
        #[arg(required = true, value_name = "VOLUME")]
        #[arg(add = candidates::volumes())]
        volumes: Vec<String>,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs the subcommand.
pub async fn volume(place: Place, args: VolumeArgs) -> Result<ExitCode> {
    let client = args.reach.client(&place)?;
    match args.command {
        VolumeCommand::Create { name, json } => {
            // The token of a volume is for its files, and ends up in no terminal or log.
            let VolumeAndToken { volume_id, name, .. } = client.create_volume(&name).await?;
            match json {
                true => out!("{}", json!(Volume { volume_id, name })),
                false => out!("{volume_id}"),
            }
        }
        VolumeCommand::List { json } => {
            let volumes = client.volumes().await?;
            if json {
                out!("{}", json!(volumes));
                return Ok(ExitCode::SUCCESS);
            }
            let rows: Vec<_> = volumes.into_iter().map(|volume| [volume.volume_id, volume.name]).collect();
            let _ = output::write(table(["id", "name"], &rows).as_bytes());
        }
        VolumeCommand::Delete { volumes, json } => return delete(&client, &volumes, json).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn delete(client: &Client, volumes: &[String], as_json: bool) -> Result<ExitCode> {
    let mut done = Done::new(as_json);
    let known = client.volumes().await?;
    let mut code = ExitCode::SUCCESS;
    for name in volumes {
        let found = known.iter().find(|volume| volume.name == *name || volume.volume_id == *name);
        match found {
            Some(volume) if client.delete_volume(&volume.volume_id).await? => {
                done.add(&volume.volume_id, json!(volume));
            }
            _ => {
                note!("error: unknown volume `{name}`\nhint: `sandcove volume list` shows all");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}
