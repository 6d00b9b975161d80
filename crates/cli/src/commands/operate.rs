//! `sandcove team` and `sandcove node`: what an operator does with a server, by its admin token.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use sandcove_client::Operator;
use sandcove_wire::api::admin::{AdminTeam, LimitsUpdate, NewTeam, Node, NodeStatus, TeamUpdate};
use sandcove_wire::secret::Secret;
use serde_json::json;

use super::done::Done;
use super::format::Format;
use super::keys;
use super::reach::{Place, Reach};
use crate::output::{self, note, out};
use crate::table::{details, members, table};

/// The operator's credentials.
#[derive(Debug, Args)]
pub struct Rights {
    #[command(flatten)]
    reach: Reach,
    /// file with the admin token [default: $SANDCOVE_ADMIN_TOKEN, or that of the context or of this machine's configuration file]
    #[arg(long, value_name = "FILE", global = true)]
    admin_token_file: Option<PathBuf>,
}

impl Rights {
    /// A client with these rights.
    pub fn operator(&self, place: &Place, local: Option<Secret>) -> Result<Operator> {
        self.reach.operator(place, self.admin_token_file.as_deref(), local)
    }
}

/// Arguments of `team`.
#[derive(Debug, Args)]
pub struct TeamArgs {
    #[command(flatten)]
    rights: Rights,
    #[command(subcommand)]
    command: TeamCommand,
}

/// Subcommands of `team`.
#[derive(Debug, Subcommand)]
pub enum TeamCommand {
    /// create a team, and print its id
    Create {
        /// display name of the team
        name: String,
        /// namespace of the templates of the team [default: from the name]
        #[arg(long)]
        slug: Option<String>,
        /// set a limit, such as concurrentSandboxes=50; repeatable
        #[arg(short, long = "limit", value_name = "NAME=NUMBER", value_parser = limit)]
        limits: Vec<(String, u64)>,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// list teams
    #[command(visible_alias = "ls")]
    List {
        /// print JSON, with all limits
        #[arg(long)]
        json: bool,
    },
    /// change the name or limits of a team, block it or ban it
    Update {
        /// id, name or namespace of the team
        team: String,
        /// new display name
        #[arg(long)]
        name: Option<String>,
        /// set a limit, such as concurrentSandboxes=50; repeatable
        #[arg(short, long = "limit", value_name = "NAME=NUMBER", value_parser = limit)]
        limits: Vec<(String, u64)>,
        /// let the team only read and delete, for this reason
        #[arg(long, value_name = "REASON")]
        block: Option<String>,
        /// end a block or ban
        #[arg(long, conflicts_with_all = ["block", "ban"])]
        restore: bool,
        /// refuse all requests of the team
        #[arg(long)]
        ban: bool,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// create, list and delete the API keys of a team
    #[command(subcommand)]
    Keys(TeamKeysCommand),
    /// create an API key for a team: the former name of `team keys create`
    #[command(hide = true)]
    Key(NewKeyArgs),
    /// kill all sandboxes of a team, and print how many there were
    Kill {
        /// id, name or namespace of the team
        team: String,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// cancel the builds of a team that wait or are in progress, and print how many there were
    CancelBuilds {
        /// id, name or namespace of the team
        team: String,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Subcommands of `team keys`.
#[derive(Debug, Subcommand)]
pub enum TeamKeysCommand {
    /// create an API key for a team, and print it, once
    Create(NewKeyArgs),
    /// list the keys of a team by id, name, and first and last characters
    #[command(visible_alias = "ls")]
    List {
        /// id, name or namespace of the team
        team: String,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// delete keys of a team, and print their ids; the server refuses them at once
    Delete {
        /// id, name or namespace of the team
        team: String,
        /// name, id, or first characters of the id or key
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `team keys create`.
#[derive(Debug, Args)]
pub struct NewKeyArgs {
    /// id, name or namespace of the team
    team: String,
    /// name of the key
    name: String,
    /// print JSON
    #[arg(long)]
    json: bool,
}

/// Parses `NAME=NUMBER`.
fn limit(text: &str) -> Result<(String, u64), String> {
    let (name, number) = text.split_once('=').ok_or_else(|| format!("expected NAME=NUMBER, not `{text}`"))?;
    let number = number.parse().map_err(|_| format!("invalid number `{number}`"))?;
    let known = serde_json::from_value::<LimitsUpdate>(json!({ name: number }));
    known.map_err(|error| error.to_string())?;
    Ok((name.to_owned(), number))
}

fn update_of(limits: Vec<(String, u64)>) -> Result<LimitsUpdate> {
    let members = limits.into_iter().map(|(name, number)| (name, number.into())).collect();
    Ok(serde_json::from_value(serde_json::Value::Object(members))?)
}

/// Runs a subcommand of `team`.
pub async fn team(place: Place, args: TeamArgs, local: Option<Secret>) -> Result<ExitCode> {
    let operator = args.rights.operator(&place, local)?;
    match args.command {
        TeamCommand::Create { name, slug, limits, json } => {
            let new = NewTeam { name, slug, limits: update_of(limits)? };
            let made = operator.create_team(&new).await?;
            match json {
                true => out!("{}", json!(made)),
                false => out!("{}", made.id),
            }
        }
        TeamCommand::List { json } => list(&operator, json).await?,
        TeamCommand::Update { team, name, limits, block, restore, ban, json } => {
            let blocked = (block.is_some() || restore).then_some(block.is_some());
            let update = TeamUpdate {
                name,
                is_banned: (ban || restore).then_some(ban),
                is_blocked: blocked,
                blocked_reason: block,
                limits: update_of(limits)?,
            };
            let changed = operator.update_team(&named(&operator, &team).await?.id, &update).await?;
            if json {
                out!("{}", json!(changed));
            }
        }
        TeamCommand::Keys(TeamKeysCommand::Create(args)) | TeamCommand::Key(args) => {
            create_key(&operator, args).await?;
        }
        TeamCommand::Keys(TeamKeysCommand::List { team, json }) => {
            let found = operator.keys(&named(&operator, &team).await?.id).await?;
            match json {
                true => out!("{}", json!(found)),
                false => keys::list(&found),
            }
        }
        TeamCommand::Keys(TeamKeysCommand::Delete { team, keys, json }) => {
            return delete_keys(&operator, &team, &keys, json).await;
        }
        TeamCommand::Kill { team, json } => {
            let killed = operator.kill_sandboxes(&named(&operator, &team).await?.id).await?;
            match json {
                true => out!("{}", json!(killed)),
                false => out!("{}", killed.killed_count),
            }
            if killed.failed_count > 0 {
                bail!("failed to kill {}", super::count(killed.failed_count as usize, "sandbox"));
            }
        }
        TeamCommand::CancelBuilds { team, json } => {
            let cancelled = operator.cancel_builds(&named(&operator, &team).await?.id).await?;
            match json {
                true => out!("{}", json!(cancelled)),
                false => out!("{}", cancelled.cancelled_count),
            }
            if cancelled.failed_count > 0 {
                bail!("failed to cancel {}", super::count(cancelled.failed_count as usize, "build"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn create_key(operator: &Operator, args: NewKeyArgs) -> Result<()> {
    let key = operator.create_key(&named(operator, &args.team).await?.id, &args.name).await?;
    match args.json {
        true => out!("{}", json!(key)),
        false => out!("{}", key.key.expose()),
    }
    Ok(())
}

async fn delete_keys(operator: &Operator, team: &str, words: &[String], as_json: bool) -> Result<ExitCode> {
    let id = named(operator, team).await?.id;
    let keys = operator.keys(&id).await?;
    let (chosen, mut code) = keys::chosen(&keys, words, &format!("sandcove team keys list {team}"))?;
    let mut done = Done::new(as_json);
    for key in chosen {
        if operator.delete_key(&id, &key.id).await? {
            done.add(&key.id, json!(key));
        } else {
            note!("`{}` is deleted already", key.id);
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

async fn named(operator: &Operator, word: &str) -> Result<AdminTeam> {
    let teams = operator.teams().await?;
    let is = |team: &AdminTeam| team.id == word || team.slug == word || team.name == word;
    let mut found: Vec<AdminTeam> = teams.into_iter().filter(is).collect();
    match (found.pop(), found.is_empty()) {
        (Some(team), true) => Ok(team),
        (Some(_), false) => bail!("several teams are named `{word}`; use an id of `sandcove team list`"),
        (None, _) => bail!("unknown team `{word}`\nhint: `sandcove team list` shows all"),
    }
}

async fn list(operator: &Operator, as_json: bool) -> Result<()> {
    let teams = operator.teams().await?;
    if as_json {
        out!("{}", json!(teams));
        return Ok(());
    }
    let running = operator.running_counts().await?;
    let row = |team: AdminTeam| {
        let standing = match (team.is_banned, team.is_blocked) {
            (true, _) => "banned",
            (false, true) => "blocked",
            (false, false) => "good",
        };
        let running = running.get(&team.id).copied().unwrap_or(0);
        let sandboxes = format!("{running} of {}", team.limits.concurrent_sandboxes);
        [team.id, team.slug, standing.to_owned(), sandboxes, team.name]
    };
    let rows: Vec<_> = teams.into_iter().map(row).collect();
    let _ = output::write(table(["id", "namespace", "standing", "running", "name"], &rows).as_bytes());
    Ok(())
}

/// Arguments of `node`.
#[derive(Debug, Args)]
pub struct NodeArgs {
    #[command(flatten)]
    rights: Rights,
    #[command(subcommand)]
    command: NodeCommand,
}

/// Subcommands of `node`.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// list hosts with their sandboxes, processors, memory and disks
    #[command(visible_alias = "ls")]
    List {
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// show a host: lines on a terminal, JSON otherwise
    Info {
        /// id of the host [default: the only one]
        node: Option<String>,
        #[command(flatten)]
        format: Format,
    },
    /// open a host for new sandboxes, or close it
    Set {
        /// what the host does with new sandboxes
        #[arg(value_enum)]
        status: Wanted,
        /// id of the host [default: the only one]
        node: Option<String>,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The policy of a host towards new sandboxes.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Wanted {
    /// it takes them
    Ready,
    /// it refuses them, and keeps those it has
    Draining,
}

/// Runs a subcommand of `node`.
pub async fn node(place: Place, args: NodeArgs, local: Option<Secret>) -> Result<ExitCode> {
    let operator = args.rights.operator(&place, local)?;
    let nodes = operator.nodes().await?;
    match args.command {
        NodeCommand::List { json: true } => out!("{}", json!(nodes)),
        NodeCommand::List { json: false } => {
            let rows: Vec<_> = nodes.iter().map(row).collect();
            let header = ["id", "status", "sandboxes", "cpu", "memory", "disk", "version"];
            let _ = output::write(table(header, &rows).as_bytes());
        }
        NodeCommand::Info { node, format } => {
            let node = json!(one(&nodes, node.as_deref())?);
            match format.is_for_people() {
                true => {
                    let _ = output::write(details(&members(&node)).as_bytes());
                }
                false => out!("{node:#}"),
            }
        }
        NodeCommand::Set { status, node, json } => {
            let node = one(&nodes, node.as_deref())?;
            let status = match status {
                Wanted::Ready => NodeStatus::Ready,
                Wanted::Draining => NodeStatus::Draining,
            };
            operator.set_node_status(&node.id, status).await?;
            match json {
                true => out!("{}", json!({ "id": node.id, "status": status })),
                false => note!("{} is {}", node.id, word(status)),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn one<'n>(nodes: &'n [Node], id: Option<&str>) -> Result<&'n Node> {
    match (id, nodes) {
        (None, [node]) => Ok(node),
        (None, _) => {
            bail!("there are {} hosts\nhint: name one of them; `sandcove node list` shows all", nodes.len())
        }
        (Some(id), nodes) => nodes
            .iter()
            .find(|node| node.id == id)
            .with_context(|| format!("unknown host `{id}`\nhint: `sandcove node list` shows all")),
    }
}

fn word(status: NodeStatus) -> &'static str {
    match status {
        NodeStatus::Ready => "ready",
        NodeStatus::Draining => "draining",
        NodeStatus::Connecting => "connecting",
        NodeStatus::Unhealthy => "unhealthy",
        NodeStatus::Standby => "standby",
    }
}

fn row(node: &Node) -> [String; 7] {
    const GIB: f64 = (1_u64 << 30) as f64;
    let share = |used: u64, total: u64| format!("{:.1} / {:.1} GiB", used as f64 / GIB, total as f64 / GIB);
    let metrics = &node.metrics;
    let (used, total) = metrics
        .disks
        .iter()
        .fold((0, 0), |(used, total), disk| (used + disk.used_bytes, total + disk.total_bytes));
    [
        node.id.clone(),
        word(node.status).to_owned(),
        node.sandbox_count.to_string(),
        format!("{} % of {}", metrics.cpu_percent, metrics.cpu_count),
        share(metrics.memory_used_bytes, metrics.memory_total_bytes),
        share(used, total),
        node.version.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_api() {
        assert_eq!(limit("maxVcpu=4"), Ok(("maxVcpu".to_owned(), 4)));
        assert!(limit("maxVcpus=4").unwrap_err().contains("maxVcpu"));
        assert!(limit("maxVcpu").is_err() && limit("maxVcpu=x").is_err());
        assert_eq!(update_of(vec![limit("volumes=2").unwrap()]).unwrap().volumes, Some(2));
    }
}
