//! `sandcove config` and `sandcove auth`: named servers, and keys for them.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use sandcove_client::Client;
use sandcove_wire::secret::Secret;
use serde_json::{Map, Value, json};

use super::candidates;
use super::reach::{Place, Reach};
use super::serve::not_running;
use crate::contexts::{Context, Contexts};
use crate::output::{self, note, out};
use crate::table::table;
use crate::terminal::read_hidden;

/// Subcommands of `config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// print the contexts, or one setting: `context`, NAME.url, NAME.api-key or NAME.admin-token
    Get {
        /// setting to print; without it, all contexts, with no keys
        key: Option<String>,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// change a setting; NAME.url makes a context, `context` selects one, and keys come from standard input
    Set {
        /// `context`, NAME.url, NAME.api-key or NAME.admin-token
        key: String,
        /// new value; not for keys, which other accounts of the machine would see
        value: Option<String>,
    },
    /// remove a setting, a context with its keys (NAME), or the selection (`context`)
    Unset {
        /// `context`, NAME, NAME.api-key or NAME.admin-token
        key: String,
    },
    /// print the path of the file with the contexts; keys are in keys.toml beside it
    Path {
        /// print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The setting that a word of the command line names.
enum Setting<'w> {
    Selection,
    Url(&'w str),
    ApiKey(&'w str),
    AdminToken(&'w str),
    Whole(&'w str),
}

impl<'w> Setting<'w> {
    fn parse(word: &'w str) -> Result<Self> {
        Ok(match word.split_once('.') {
            None if word == "context" => Self::Selection,
            None => Self::Whole(word),
            Some((name, "url")) => Self::Url(name),
            Some((name, "api-key")) => Self::ApiKey(name),
            Some((name, "admin-token")) => Self::AdminToken(name),
            Some((name, other)) => {
                bail!("unknown setting `{other}` of context `{name}`; use url, api-key or admin-token")
            }
        })
    }
}

/// Runs a subcommand of `config`.
pub fn config(command: ConfigCommand) -> Result<ExitCode> {
    let mut contexts = Contexts::load()?;
    match command {
        ConfigCommand::Path { json: true } => out!("{}", json!({ "path": contexts.path() })),
        ConfigCommand::Path { json: false } => out!("{}", contexts.path().display()),
        ConfigCommand::Get { key: None, json } => list(&contexts, json),
        ConfigCommand::Get { key: Some(key), json } => {
            let value = get(&contexts, &key)?.with_context(|| format!("`{key}` is not set\nhint: `sandcove config set {key}` sets it, and `sandcove config get` shows what is set"))?;
            match json {
                true => out!("{}", json!(value)),
                false => out!("{value}"),
            }
        }
        ConfigCommand::Set { key, value } => {
            set(&mut contexts, &key, value)?;
            contexts.save()?;
        }
        ConfigCommand::Unset { key } => {
            match Setting::parse(&key)? {
                Setting::Selection => contexts.select(None)?,
                Setting::Whole(name) => contexts.remove(name)?,
                Setting::ApiKey(name) => contexts.credentials(name)?.api_key = None,
                Setting::AdminToken(name) => contexts.credentials(name)?.admin_token = None,
                Setting::Url(name) => {
                    bail!("a context has an address; `sandcove config unset {name}` removes the context")
                }
            }
            contexts.save()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn get(contexts: &Contexts, key: &str) -> Result<Option<String>> {
    let text = |secret: Option<Secret>| secret.map(|secret| secret.expose().to_owned());
    Ok(match Setting::parse(key)? {
        Setting::Selection => contexts.selection().map(str::to_owned),
        Setting::Url(name) | Setting::Whole(name) => Some(contexts.named(name)?.url),
        Setting::ApiKey(name) => text(contexts.named(name)?.credentials.api_key),
        Setting::AdminToken(name) => text(contexts.named(name)?.credentials.admin_token),
    })
}

fn set(contexts: &mut Contexts, key: &str, value: Option<String>) -> Result<()> {
    match (Setting::parse(key)?, value) {
        (Setting::Selection, Some(name)) => contexts.select(Some(&name)),
        (Setting::Url(name), Some(url)) => contexts.set_url(name, &url),
        (Setting::ApiKey(name), None) => {
            let secret = read_secret(key)?;
            contexts.credentials(name)?.api_key = Some(secret);
            Ok(())
        }
        (Setting::AdminToken(name), None) => {
            let secret = read_secret(key)?;
            contexts.credentials(name)?.admin_token = Some(secret);
            Ok(())
        }
        (Setting::ApiKey(_) | Setting::AdminToken(_), Some(_)) => {
            bail!(
                "`{key}` is read from standard input, so that other accounts cannot see it\nhint: `sandcove config set {key} < FILE`"
            )
        }
        (Setting::Whole(name), _) => {
            bail!("unknown setting `{name}`; use context, {name}.url, {name}.api-key or {name}.admin-token")
        }
        (Setting::Selection | Setting::Url(_), None) => {
            bail!("`{key}` needs a value\nhint: `sandcove config set {key} VALUE`")
        }
    }
}

/// Reads a key from standard input; from a terminal a line, which is not shown.
fn read_secret(what: &str) -> Result<Secret> {
    let mut text = String::new();
    if std::io::stdin().is_terminal() {
        text = read_hidden(what, output::write_error).context("failed to read from the terminal")?;
    } else {
        std::io::stdin().read_to_string(&mut text).context("failed to read standard input")?;
    }
    match text.trim() {
        "" => bail!("{what} is empty\nhint: type it, or pass it on standard input: `… < FILE`"),
        text => Ok(Secret::new(text)),
    }
}

fn list(contexts: &Contexts, as_json: bool) {
    let selected = |context: &Context| contexts.selection() == Some(context.name.as_str());
    if as_json {
        let all: Map<String, Value> = contexts
            .all()
            .map(|context| {
                let selected = selected(&context);
                let Context { name, url, credentials } = context;
                let [key, token] = [credentials.api_key.is_some(), credentials.admin_token.is_some()];
                (name, json!({ "url": url, "selected": selected, "apiKey": key, "adminToken": token }))
            })
            .collect();
        out!("{}", json!(all));
        return;
    }
    let yes = |is: bool| if is { "yes" } else { "" }.to_owned();
    let rows: Vec<_> = contexts
        .all()
        .map(|context| {
            let chosen = if selected(&context) { "*" } else { "" }.to_owned();
            let [key, token] =
                [context.credentials.api_key.is_some(), context.credentials.admin_token.is_some()];
            [chosen, context.name, context.url, yes(key), yes(token)]
        })
        .collect();
    let _ = output::write(table(["", "name", "url", "api key", "admin token"], &rows).as_bytes());
}

/// Arguments of `auth`.
#[derive(Debug, Args)]
pub struct AuthArgs {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    command: AuthCommand,
}

/// Subcommands of `auth`.
#[derive(Debug, Subcommand)]
pub enum AuthCommand {
    /// check an API key, which is asked for or read from standard input, and keep it with the address as a context
    Login {
        /// address of the server
        server: String,
        /// name of the context
        #[arg(long, default_value = "default")]
        name: String,
    },
    /// remove a context with its keys from this machine; the keys stay valid
    Logout {
        /// name of the context [default: the selected one]
        #[arg(add = candidates::contexts())]
        name: Option<String>,
    },
    /// show which server commands use, and whether it accepts the key; the exit status is 1 if not
    Info {
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// select a context
    Configure {
        /// name of the context
        #[arg(add = candidates::contexts())]
        name: String,
    },
}

/// Runs a subcommand of `auth`.
pub async fn auth(place: Place, args: AuthArgs) -> Result<ExitCode> {
    match args.command {
        AuthCommand::Login { server, name } => {
            let mut contexts = Contexts::load()?;
            contexts.set_url(&name, &server)?;
            let key = read_secret("API key")?;
            Client::new(&server, &key)?.ping().await?;
            contexts.credentials(&name)?.api_key = Some(key);
            contexts.select(Some(&name))?;
            contexts.save()?;
            note!("commands now use {server} (context `{name}`)");
            Ok(ExitCode::SUCCESS)
        }
        AuthCommand::Logout { name } => {
            let mut contexts = Contexts::load()?;
            let Some(name) = name.or_else(|| contexts.selection().map(str::to_owned)) else {
                bail!("no context is selected\nhint: `sandcove config get` shows all");
            };
            contexts.remove(&name)?;
            contexts.save()?;
            note!("removed context `{name}`");
            Ok(ExitCode::SUCCESS)
        }
        AuthCommand::Info { json } => {
            let Some(target) = args.reach.target(&place)? else { bail!(not_running(&place.data_dir)) };
            let answer = target.client()?.ping().await;
            match json {
                true => out!("{}", json!({ "url": target.url, "accepted": answer.is_ok() })),
                false if answer.is_ok() => out!("{} accepts the key", target.url),
                false => {}
            }
            match answer {
                Err(error) if !json => Err(error.into()),
                answer => Ok(if answer.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
            }
        }
        AuthCommand::Configure { name } => {
            config(ConfigCommand::Set { key: "context".to_owned(), value: Some(name) })
        }
    }
}
