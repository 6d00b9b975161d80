//! `sandcove sandbox`: the sandboxes of a running server.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use sandcove_client::Client;
use sandcove_wire::id::SandboxId;
use serde_json::json;

use super::candidates;
use super::copy::{self, CatArgs, CopyArgs};
use super::done::Done;
use super::egress::{self, EgressArgs};
use super::exec::{self, ConnectArgs, ExecArgs};
use super::files::{self, FilesArgs};
use super::format::Format;
use super::forward::{PortPair, forward};
use super::lifecycle::{self, ForkArgs, ParkArgs, PauseArgs, ResumeArgs, SandboxCreateArgs};
use super::list::{self, ListArgs, Which};
use super::observe::{self, LogsArgs, MetricsArgs};
use super::ports::{self, OpenArgs, PortsArgs};
use super::reach::{Place, Reach};
use super::run::{self, InSandboxArgs};
use super::seconds;
use super::snapshot::{self, SnapshotCommand};
use crate::output::{self, note, out};
use crate::table::{details, members};

/// Arguments of `sandbox`.
#[derive(Debug, Args)]
pub struct SandboxArgs {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    command: SandboxCommand,
}

/// Subcommands of `sandbox`.
#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// create a sandbox, and open a shell in it or print its id
    #[command(alias = "cr")]
    Create(SandboxCreateArgs),
    /// list running and paused sandboxes
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// show the details of a sandbox: lines on a terminal, JSON otherwise
    #[command(alias = "in")]
    Info {
        /// id of the sandbox
        #[arg(add = candidates::sandboxes())]
        id: SandboxId,
        #[command(flatten)]
        format: Format,
    },
    /// pause sandboxes, and print the ids of those that were running
    #[command(alias = "ps")]
    Pause(PauseArgs),
    /// bring the memory of paused sandboxes to disk, which survives a reboot of the host, and print their ids
    Park(ParkArgs),
    /// resume sandboxes, and print their ids
    #[command(alias = "rs")]
    Resume(ResumeArgs),
    /// set the end of a sandbox
    #[command(visible_alias = "set-timeout")]
    Timeout {
        /// id of the sandbox
        #[arg(add = candidates::sandboxes())]
        id: SandboxId,
        /// time from now, such as 300 or 5m
        #[arg(value_name = "SECONDS", value_parser = seconds)]
        timeout: u32,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// start sandboxes with the files of another, and print their ids
    Fork(ForkArgs),
    /// take, list and delete snapshots
    #[command(subcommand, alias = "snap")]
    Snapshot(SnapshotCommand),
    /// print the log of a sandbox, oldest entries first
    #[command(alias = "lg")]
    Logs(LogsArgs),
    /// print samples of the processors, memory and disk that a sandbox uses
    #[command(alias = "mt")]
    Metrics(MetricsArgs),
    /// print the last connections of a sandbox with rules for host names, headers or a proxy, oldest first
    Egress(EgressArgs),
    /// kill sandboxes
    #[command(alias = "kl")]
    Kill {
        /// ids of sandboxes
        #[arg(required_unless_present = "all")]
        #[arg(add = candidates::sandboxes())]
        ids: Vec<SandboxId>,
        /// kill all running sandboxes of the key's team, or those that --state and --metadata name
        #[arg(short, long, conflicts_with = "ids")]
        all: bool,
        #[command(flatten)]
        which: Which,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// copy files from or to a sandbox
    Cp(CopyArgs),
    /// print files of a sandbox
    Cat(CatArgs),
    /// list a directory of a sandbox
    Files(FilesArgs),
    /// run a command in a sandbox, and exit with its status
    #[command(
        alias = "ex",
        after_help = "Standard input and signals are passed on to the command. The exit status is 128 + N if signal N ended it."
    )]
    Exec(ExecArgs),
    /// run code in a sandbox, as `sandcove run` does in one of its own
    Run(InSandboxArgs),
    /// open an interactive shell in a sandbox
    #[command(alias = "cn")]
    Connect(ConnectArgs),
    /// list the ports on which programs in a sandbox listen, with their URLs
    Ports(PortsArgs),
    /// print the URL of a sandbox in the dashboard, or of one of its ports, and open it in a browser
    Open(OpenArgs),
    /// forward ports of a sandbox to this machine until interrupted; connections use your key
    Forward {
        /// id of the sandbox
        #[arg(add = candidates::sandboxes())]
        id: SandboxId,
        /// port of the sandbox, and local port if it differs (0 for any free port)
        #[arg(required = true, value_name = "PORT[:LOCAL]")]
        ports: Vec<PortPair>,
        /// print a JSON object for each address on which it listens
        #[arg(long)]
        json: bool,
    },
}

/// Runs the subcommand.
pub async fn sandbox(place: Place, args: SandboxArgs) -> Result<ExitCode> {
    let client = args.reach.client(&place)?;
    match args.command {
        SandboxCommand::Create(args) => lifecycle::create(&client, args).await,
        SandboxCommand::Pause(args) => lifecycle::pause(&client, args).await,
        SandboxCommand::Park(args) => lifecycle::park(&client, args).await,
        SandboxCommand::Resume(args) => lifecycle::resume(&client, args).await,
        SandboxCommand::Timeout { id, timeout, json } => {
            lifecycle::set_timeout(&client, &id, timeout, json).await
        }
        SandboxCommand::Fork(args) => lifecycle::fork(&client, args).await,
        SandboxCommand::Snapshot(command) => snapshot::snapshot(&client, command).await,
        SandboxCommand::Logs(args) => observe::logs(&client, args).await,
        SandboxCommand::Metrics(args) => observe::metrics(&client, args).await,
        SandboxCommand::Egress(args) => egress::egress(&client, args).await,
        SandboxCommand::List(args) => list::list(&client, args).await,
        SandboxCommand::Info { id, format } => {
            let info = without_tokens(client.info(&id).await?);
            match format.is_for_people() {
                true => {
                    let _ = output::write(details(&members(&info)).as_bytes());
                }
                false => out!("{info:#}"),
            }
            Ok(ExitCode::SUCCESS)
        }
        SandboxCommand::Kill { ids, all, which, json } => {
            let ids = match all {
                true => {
                    let all = client.list_where(&which.or_running().filter()).await?;
                    all.into_iter().map(|sandbox| sandbox.sandbox_id).collect()
                }
                false => ids,
            };
            kill(&client, &ids, json).await
        }
        SandboxCommand::Ports(args) => ports::ports(&client, args).await,
        SandboxCommand::Open(args) => ports::open(&client, args).await,
        SandboxCommand::Cp(args) => copy::copy(&client, args).await,
        SandboxCommand::Cat(args) => copy::cat(&client, args).await,
        SandboxCommand::Files(args) => files::files(&client, args).await,
        SandboxCommand::Exec(args) => exec::exec(&client, args).await,
        SandboxCommand::Run(args) => run::in_sandbox(&client, args).await,
        SandboxCommand::Connect(args) => exec::connect(&client, args).await,
        SandboxCommand::Forward { id, ports, json } => {
            forward(&client.attach(&id).await?, &ports, json).await
        }
    }
}

async fn kill(client: &Client, ids: &[SandboxId], as_json: bool) -> Result<ExitCode> {
    let mut done = Done::new(as_json);
    let mut code = ExitCode::SUCCESS;
    for id in ids {
        if client.kill(id).await? {
            done.add(id, json!({ "sandboxID": id }));
        } else {
            note!("error: unknown sandbox `{id}`\nhint: `sandcove sandbox list` shows all");
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Removes tokens: the output of `info` ends up in terminals and logs.
pub fn without_tokens(mut info: serde_json::Value) -> serde_json::Value {
    if let Some(object) = info.as_object_mut() {
        object.retain(|key, _| !key.ends_with("Token"));
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_not_shown() {
        let info = json!({ "sandboxID": "i", "envdAccessToken": "secret", "trafficAccessToken": "secret" });
        assert_eq!(without_tokens(info), json!({ "sandboxID": "i" }));
    }
}
