//! `sandcove keys`: API keys, in the database of a server that may be running or not. The server process writes its database and may have
//! been taken over, so that the command opens it with no more rights than that process.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use jiff::Timestamp;
use sandcove_server::domain::team::Team;
use sandcove_server::store::{ApiKey, Store};
use sandcove_wire::api::team::{self as wire, KeyMask};
use sandcove_wire::secret::Secret;
use serde_json::json;

use super::done::Done;
use super::serve::not_running;
use crate::data_dir::ServerFile;
use crate::output::{self, note, out};
use crate::server_dir;
use crate::table::table;

/// Minimum length of a prefix that names an id or a key.
const MIN_PREFIX: usize = 4;

/// Subcommands of `keys`.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// create a key and print it, once
    Create {
        /// unique name, such as the user or machine that the key is for
        name: String,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// list keys by id, name, and first and last characters
    List {
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// delete keys; the server refuses them at once
    Delete {
        /// name, id, or first characters of the id or key
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The record of an API key, from the database or from the API.
pub trait Known {
    /// Id of the key.
    fn id(&self) -> String;
    /// Display name.
    fn name(&self) -> &str;
    /// Part of the key that may be shown.
    fn mask(&self) -> &KeyMask;
    /// Time of creation, and of the last use.
    fn times(&self) -> (Timestamp, Option<Timestamp>);
}

impl Known for ApiKey {
    fn id(&self) -> String {
        self.id.to_string()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn mask(&self) -> &KeyMask {
        &self.mask
    }

    fn times(&self) -> (Timestamp, Option<Timestamp>) {
        (self.created_at, self.last_used_at)
    }
}

impl Known for wire::ApiKey {
    fn id(&self) -> String {
        self.id.clone()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn mask(&self) -> &KeyMask {
        &self.mask
    }

    fn times(&self) -> (Timestamp, Option<Timestamp>) {
        (self.created_at, self.last_used)
    }
}

/// The database of a data directory, to be opened with the rights of the server process.
#[derive(Debug)]
pub struct Keys {
    database: PathBuf,
    /// The key that the commands of this machine use.
    own: Option<Secret>,
}

impl Keys {
    /// Reads what is root's, and gives up all rights but those of the account of the server's directory. The process must have one thread.
    ///
    /// # Errors
    /// An error if no server has run with this data directory, or this process cannot become that account.
    pub fn prepare(data_dir: &Path) -> Result<Self> {
        let data_dir = &std::path::absolute(data_dir)?;
        let Some(account) = server_dir::claim(data_dir)? else { bail!(not_running(data_dir)) };
        let own = ServerFile::read(data_dir)?.map(|file| file.api_key);
        server_dir::become_account(&server_dir::path(data_dir), account)?;
        Ok(Self { database: server_dir::database(data_dir), own })
    }

    /// Runs the subcommand.
    pub async fn run(self, command: KeysCommand) -> Result<ExitCode> {
        let database = &self.database;
        // Opening the store would fail with a less helpful error.
        std::fs::File::open(database).with_context(|| format!("failed to open `{}`", database.display()))?;
        let store = Store::open(database).await?;
        let team = store.default_team().await?;
        let outcome = carry_out(&store, &team, self.own.as_ref(), command).await;
        store.close().await;
        outcome
    }
}

async fn carry_out(
    store: &Store,
    team: &Team,
    own: Option<&Secret>,
    command: KeysCommand,
) -> Result<ExitCode> {
    match command {
        KeysCommand::Create { name, json } => create(store, team, name.trim(), json).await,
        KeysCommand::List { json } => {
            let keys = store.keys(team).await?;
            if json {
                out!("{}", json!(keys));
            } else {
                list(&keys);
            }
            Ok(ExitCode::SUCCESS)
        }
        KeysCommand::Delete { keys, json } => delete(store, team, own, &keys, json).await,
    }
}

async fn create(store: &Store, team: &Team, name: &str, as_json: bool) -> Result<ExitCode> {
    if name.is_empty() {
        bail!(
            "the name of a key must not be empty\nhint: name the user or machine that it is for: `sandcove keys create laptop`"
        );
    }
    if let Some(key) = store.keys(team).await?.iter().find(|key| key.name == name) {
        bail!(
            "a key named `{name}` already exists ({}); choose another name, or delete that key first",
            key.id
        );
    }
    let (key, secret) = store.create_key(team, name).await?;
    if as_json {
        let (id, created_at) = (key.id, key.created_at);
        out!("{}", json!({ "id": id, "name": name, "key": secret.expose(), "createdAt": created_at }));
    } else {
        out!("{}", secret.expose());
    }
    Ok(ExitCode::SUCCESS)
}

/// The visible first characters of a key.
fn beginning(key: &impl Known) -> String {
    let mask = key.mask();
    format!("{}{}", mask.prefix, mask.masked_value_prefix)
}

/// Prints one line for each key.
pub fn list(keys: &[impl Known]) {
    let rows: Vec<_> = keys.iter().map(row).collect();
    let _ = output::write(table(["id", "key", "created", "last used", "name"], &rows).as_bytes());
}

fn row(key: &impl Known) -> [String; 5] {
    let (created, used) = key.times();
    [
        key.id(),
        format!("{}…{}", beginning(key), key.mask().masked_value_suffix),
        format!("{created:.0}"),
        used.map_or("never".to_owned(), |at| format!("{at:.0}")),
        key.name().to_owned(),
    ]
}

/// The keys that a word of the command line names: by id or name, or else by their first characters.
fn named<'k, K: Known>(keys: &'k [K], word: &str) -> Vec<&'k K> {
    let exact: Vec<_> = keys.iter().filter(|key| key.id() == word || key.name() == word).collect();
    if !exact.is_empty() || word.len() < MIN_PREFIX {
        return exact;
    }
    // Every key begins with `e2b_`; a complete key is longer than its visible part.
    let begins = |key: &&K| {
        let beginning = beginning(*key);
        let by_key = word.len() > key.mask().prefix.len()
            && (beginning.starts_with(word)
                || (word.starts_with(&beginning) && word.ends_with(&key.mask().masked_value_suffix)));
        by_key || key.id().starts_with(word)
    };
    keys.iter().filter(begins).collect()
}

/// The keys that words of the command line name, and whether each word names one. `listing` is the command that shows all keys.
///
/// # Errors
/// If a word names several keys.
pub fn chosen<'k, K: Known>(
    keys: &'k [K],
    words: &[String],
    listing: &str,
) -> Result<(Vec<&'k K>, ExitCode)> {
    let mut code = ExitCode::SUCCESS;
    let mut chosen = Vec::new();
    for word in words {
        match named(keys, word).as_slice() {
            [] => {
                note!("error: unknown key `{word}`\nhint: `{listing}` shows all");
                code = ExitCode::FAILURE;
            }
            [key] => chosen.push(*key),
            several => {
                let ids: Vec<String> = several.iter().map(|key| key.id()).collect();
                bail!("`{word}` matches several keys; use one of the ids {}", ids.join(", "));
            }
        }
    }
    Ok((chosen, code))
}

async fn delete(
    store: &Store,
    team: &Team,
    own: Option<&Secret>,
    words: &[String],
    as_json: bool,
) -> Result<ExitCode> {
    let own = match own {
        Some(key) => store.key_id(team, key).await?,
        None => None,
    };
    let keys = store.keys(team).await?;
    let (chosen, code) = chosen(&keys, words, "sandcove keys list")?;
    // The server would add the key again at its next start, and until then this command would be locked out.
    if let Some(own) = own.filter(|own| chosen.iter().any(|key| key.id == *own)) {
        bail!(
            "the commands of this machine use the key {own}; to delete it, first start the server with another SANDCOVE_API_KEY"
        );
    }
    let mut done = Done::new(as_json);
    for key in chosen {
        if store.delete_key(team, key.id).await? {
            done.add(key.id, json!(key));
        }
    }
    Ok(code)
}
