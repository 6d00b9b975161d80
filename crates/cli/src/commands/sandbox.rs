//! `sandcove sandbox`: the sandboxes of a running server.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use sandcove_client::Client;
use sandcove_wire::id::SandboxId;

use super::exec::{self, ConnectArgs, ExecArgs};
use super::forward::{PortPair, forward};
use super::list::{self, ListArgs};
use super::reach::{Place, Reach};
use crate::output::{note, out};

/// Arguments of `sandbox`.
#[derive(Debug, Args)]
pub struct SandboxArgs {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    command: SandboxCommand,
}

/// What can be done with sandboxes.
#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// list running and paused sandboxes
    List(ListArgs),
    /// show what the server knows about a sandbox, as JSON
    Info { id: SandboxId },
    /// end sandboxes
    Kill {
        #[arg(required_unless_present = "all")]
        ids: Vec<SandboxId>,
        /// end every sandbox
        #[arg(long, conflicts_with = "ids")]
        all: bool,
    },
    /// run a command in a sandbox; its exit status becomes this one's
    #[command(
        after_help = "Standard input, signals and the exit status are those of the command; 128 + N when signal N ended it."
    )]
    Exec(ExecArgs),
    /// open an interactive shell in a sandbox
    Connect(ConnectArgs),
    /// forward ports of a sandbox to this machine until interrupted; connections have the rights of your key
    Forward {
        id: SandboxId,
        /// a port of the sandbox, and the local port if it differs (0: any free one)
        #[arg(required = true, value_name = "PORT[:LOCAL]")]
        ports: Vec<PortPair>,
    },
}

/// Runs the subcommand.
pub async fn sandbox(place: Place, args: SandboxArgs) -> Result<ExitCode> {
    let client = args.reach.client(&place)?;
    match args.command {
        SandboxCommand::List(args) => list::list(&client, args).await,
        SandboxCommand::Info { id } => {
            out!("{:#}", without_tokens(client.info(&id).await?));
            Ok(ExitCode::SUCCESS)
        }
        SandboxCommand::Kill { ids, all } => {
            let ids = match all {
                true => client.list().await?.into_iter().map(|sandbox| sandbox.sandbox_id).collect(),
                false => ids,
            };
            kill(&client, &ids).await
        }
        SandboxCommand::Exec(args) => exec::exec(&client, args).await,
        SandboxCommand::Connect(args) => exec::connect(&client, args).await,
        SandboxCommand::Forward { id, ports } => forward(&client.attach(&id).await?, &ports).await,
    }
}

async fn kill(client: &Client, ids: &[SandboxId]) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for id in ids {
        if client.kill(id).await? {
            out!("{id}");
        } else {
            note!("there is no sandbox {id}");
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// `info` is for people and logs; what grants access stays out of it.
fn without_tokens(mut info: serde_json::Value) -> serde_json::Value {
    if let Some(object) = info.as_object_mut() {
        object.retain(|key, _| !key.ends_with("Token"));
    }
    info
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_are_not_shown() {
        let info = json!({ "sandboxID": "i", "envdAccessToken": "secret", "trafficAccessToken": "secret" });
        assert_eq!(without_tokens(info), json!({ "sandboxID": "i" }));
    }
}
