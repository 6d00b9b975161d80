//! `sandcove secret`: values that sandboxes use in requests without having them.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use sandcove_wire::api::secret::{NewSecret, SecretUpdate};
use sandcove_wire::secret::Secret;
use serde_json::json;

use super::candidates;
use super::done::Done;
use super::reach::{Place, Reach};
use crate::output::{self, note, out};
use crate::table::table;
use crate::terminal::read_hidden;

/// Arguments of `secret`.
#[derive(Debug, Args)]
pub struct SecretArgs {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    command: SecretCommand,
}

/// Subcommands of `secret`.
#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// store a value, which is asked for or read from standard input without its last line break
    Create {
        /// name of the secret
        name: String,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// replace the value of a secret; the new one is asked for or read from standard input
    Set {
        /// name or id of the secret
        #[arg(add = candidates::secrets())]
        secret: String,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// list secrets, without their values
    #[command(visible_alias = "ls")]
    List {
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// delete secrets
    Delete {
        /// names or ids
        #[arg(required = true, value_name = "SECRET")]
        #[arg(add = candidates::secrets())]
        secrets: Vec<String>,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// have this machine's server seal all values with a new key, from its next start on
    RotateKey,
    /// have this machine's server sign tokens of sandboxes with a new key, from its next start on
    RotateSigningKey,
}

/// Runs the subcommand.
pub async fn secret(place: Place, args: SecretArgs) -> Result<ExitCode> {
    if matches!(args.command, SecretCommand::RotateKey) {
        sandcove_isolate::rotate_secret_keys(&place.data_dir)?;
        note!("the next start of the server seals all values with the new key");
        return Ok(ExitCode::SUCCESS);
    }
    if matches!(args.command, SecretCommand::RotateSigningKey) {
        sandcove_isolate::rotate_identity_keys(&place.data_dir)?;
        note!(
            "the next start of the server signs tokens with the new key, and still publishes the one before"
        );
        return Ok(ExitCode::SUCCESS);
    }
    let client = args.reach.client(&place)?;
    match args.command {
        SecretCommand::Create { name, json } => {
            let made =
                client.create_secret(&NewSecret { name, value: read_value()?, metadata: None }).await?;
            match json {
                true => out!("{}", json!(made)),
                false => out!("{}", made.secret_id),
            }
        }
        SecretCommand::Set { secret, json } => {
            let update = SecretUpdate { value: read_value()?, metadata: None };
            let changed = client.update_secret(&secret, &update).await?;
            if json {
                out!("{}", json!(changed));
            }
        }
        SecretCommand::List { json } => {
            let secrets = client.secrets().await?;
            if json {
                out!("{}", json!(secrets));
                return Ok(ExitCode::SUCCESS);
            }
            let rows: Vec<_> = secrets
                .into_iter()
                .map(|one| {
                    [
                        one.secret_id,
                        one.name,
                        one.current_version.to_string(),
                        format!("{:.0}", one.updated_at),
                    ]
                })
                .collect();
            let _ = output::write(table(["id", "name", "version", "updated"], &rows).as_bytes());
        }
        SecretCommand::Delete { secrets, json } => {
            let known = client.secrets().await?;
            let mut done = Done::new(json);
            for secret in &secrets {
                let found = known.iter().find(|one| one.name == *secret || one.secret_id == *secret);
                match found {
                    Some(found) if client.delete_secret(secret).await? => done.add(secret, json!(found)),
                    _ => bail!("unknown secret `{secret}`\nhint: `sandcove secret list` shows all"),
                }
            }
        }
        SecretCommand::RotateKey | SecretCommand::RotateSigningKey => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a value from standard input; from a terminal a line, which is not shown.
fn read_value() -> Result<Secret> {
    let mut value = String::new();
    if std::io::stdin().is_terminal() {
        value = read_hidden("value", output::write_error)
            .context("failed to read the value from the terminal")?;
    } else {
        let read = std::io::stdin().read_to_string(&mut value);
        read.context("failed to read the value from standard input")?;
    }
    let value = value.strip_suffix('\n').unwrap_or(&value);
    if value.trim().is_empty() {
        bail!("the value of the secret is empty; type it, or pass it on standard input");
    }
    Ok(Secret::new(value))
}
