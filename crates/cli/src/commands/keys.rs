//! `sandcove keys`: who may use a server. Works on its database, whether it runs or not.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Subcommand;
use sandcove_server::store::{ApiKey, Store};
use sandcove_server::teams::Team;
use serde_json::json;
use uuid::Uuid;

use super::serve::not_running;
use crate::data_dir::ServerFile;

/// What can be done with keys.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// make a key and show it; it cannot be shown again
    Create {
        /// what it is for
        name: String,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// list keys, as far as they may be shown
    List {
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// take keys' rights away, at once
    Delete {
        #[arg(required = true)]
        ids: Vec<Uuid>,
    },
}

pub async fn keys(data_dir: &Path, command: KeysCommand) -> Result<ExitCode> {
    let database = data_dir.join("sandcove.db");
    if !database.exists() {
        bail!(not_running(None));
    }
    let store = Store::open(&database).await?;
    let team = store.default_team().await?;
    let outcome = carry_out(&store, &team, data_dir, command).await;
    store.close().await;
    outcome
}

async fn carry_out(store: &Store, team: &Team, data_dir: &Path, command: KeysCommand) -> Result<ExitCode> {
    match command {
        KeysCommand::Create { name, json } => {
            let (key, secret) = store.create_key(team, &name).await?;
            if json {
                let (id, created_at) = (key.id, key.created_at);
                println!(
                    "{}",
                    json!({ "id": id, "name": name, "key": secret.expose(), "createdAt": created_at })
                );
            } else {
                println!("{}", secret.expose());
            }
            Ok(ExitCode::SUCCESS)
        }
        KeysCommand::List { json } => {
            let keys = store.keys(team).await?;
            if json {
                println!("{}", json!(keys));
            } else {
                list(&keys);
            }
            Ok(ExitCode::SUCCESS)
        }
        KeysCommand::Delete { ids } => delete(store, team, data_dir, &ids).await,
    }
}

fn list(keys: &[ApiKey]) {
    println!("{:<36}  {:<16}  {:<20}  {:<20}  name", "id", "key", "made", "used");
    for ApiKey { id, name, mask, created_at, last_used_at } in keys {
        let key = format!("{}{}…{}", mask.prefix, mask.masked_value_prefix, mask.masked_value_suffix);
        let used = last_used_at.map_or("never".to_owned(), |at| format!("{at:.0}"));
        println!("{id}  {key:<16}  {created_at:<20.0}  {used:<20}  {name}");
    }
}

async fn delete(store: &Store, team: &Team, data_dir: &Path, ids: &[Uuid]) -> Result<ExitCode> {
    let own = match ServerFile::read(data_dir)? {
        Some(file) => store.key_id(team, &file.api_key).await?,
        None => None,
    };
    // The server would let it in again at its next start, and until then this command would be locked out.
    if let Some(own) = own.filter(|own| ids.contains(own)) {
        bail!(
            "{own} is the key of this machine's own commands: start the server with another SANDCOVE_API_KEY first"
        );
    }
    let mut code = ExitCode::SUCCESS;
    for id in ids {
        if store.delete_key(team, *id).await? {
            println!("{id}");
        } else {
            eprintln!("there is no key {id}");
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}
