//! `sandcove sandbox`: looking after the sandboxes of a running server.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use sandcove_client::{Client, Command, CommandEvent};
use sandcove_wire::api::sandbox::{ListedSandbox, State};
use sandcove_wire::id::SandboxId;
use serde_json::json;

use super::forward::{PortPair, forward};
use super::reach::Reach;

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
    List {
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// show everything the server says about a sandbox, as JSON
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
    Exec {
        id: SandboxId,
        /// account to run under
        #[arg(short, long)]
        user: Option<String>,
        /// directory to run in
        #[arg(short, long)]
        cwd: Option<String>,
        /// the command and its arguments
        #[arg(required = true, trailing_var_arg = true)]
        command: Vec<String>,
    },
    /// make ports of a sandbox ports of this machine, until interrupted; what connects has the rights of your key there
    Forward {
        id: SandboxId,
        /// a port of the sandbox, and the local one if it is another (0: any)
        #[arg(required = true, value_name = "PORT[:LOCAL]")]
        ports: Vec<PortPair>,
    },
}

pub async fn sandbox(data_dir: &Path, args: SandboxArgs) -> Result<ExitCode> {
    let client = args.reach.client(data_dir).await?;
    match args.command {
        SandboxCommand::List { json } => list(&client, json).await,
        SandboxCommand::Info { id } => {
            println!("{:#}", without_tokens(client.info(&id).await?));
            Ok(ExitCode::SUCCESS)
        }
        SandboxCommand::Kill { ids, all } => {
            let ids = match all {
                true => client.list().await?.into_iter().map(|sandbox| sandbox.sandbox_id).collect(),
                false => ids,
            };
            kill(&client, &ids).await
        }
        SandboxCommand::Exec { id, user, cwd, command } => {
            let line = command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
            exec(&client, &id, Command { line, user, cwd, ..Command::default() }).await
        }
        SandboxCommand::Forward { id, ports } => forward(&client.attach(&id).await?, &ports).await,
    }
}

async fn list(client: &Client, as_json: bool) -> Result<ExitCode> {
    let sandboxes = client.list().await?;
    if as_json {
        println!("{}", json!(sandboxes));
        return Ok(ExitCode::SUCCESS);
    }
    println!("{:<22} {:<20} {:<8} {:<20} ends", "id", "template", "state", "started");
    for ListedSandbox { sandbox_id, alias, template_id, state, started_at, end_at, .. } in &sandboxes {
        let template = if alias.is_empty() { template_id } else { alias };
        let state = match state {
            State::Running => "running",
            State::Paused => "paused",
        };
        println!("{sandbox_id:<22} {template:<20} {state:<8} {started_at:.0} {end_at:.0}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn kill(client: &Client, ids: &[SandboxId]) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for id in ids {
        if client.kill(id).await? {
            println!("{id}");
        } else {
            eprintln!("there is no sandbox {id}");
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

async fn exec(client: &Client, id: &SandboxId, command: Command) -> Result<ExitCode> {
    let sandbox = client.attach(id).await?;
    let exit = sandbox
        .run(&command, |event| {
            // A reader that went away ends the output, not the command.
            let _ = match event {
                CommandEvent::Stdout(bytes) => {
                    std::io::stdout().write_all(&bytes).and_then(|()| std::io::stdout().flush())
                }
                CommandEvent::Stderr(bytes) => std::io::stderr().write_all(&bytes),
            };
        })
        .await?;
    Ok(u8::try_from(exit.code).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// `info` is for people and logs; what grants access stays out of it.
fn without_tokens(mut info: serde_json::Value) -> serde_json::Value {
    if let Some(object) = info.as_object_mut() {
        object.retain(|key, _| !key.ends_with("Token"));
    }
    info
}

/// A word as the shell inside reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_command_as_they_were_typed() {
        let words = ["plain", "two words", "it's", "", "$HOME", "a;b", "-la", "ü"];
        let line = words.map(quoted).join(" ");
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("printf '%s\\n' {line}")])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), words.map(|word| format!("{word}\n")).concat());
    }

    #[test]
    fn tokens_are_not_shown() {
        let info = json!({ "sandboxID": "i", "envdAccessToken": "secret", "trafficAccessToken": "secret" });
        assert_eq!(without_tokens(info), json!({ "sandboxID": "i" }));
    }
}
