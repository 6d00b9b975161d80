//! What each tool does.

use std::time::Duration;

use sandcove_client::{Client, Command, Error, NewSandbox};
use sandcove_wire::api::sandbox::{ListedSandbox, State};
use sandcove_wire::envd::filesystem::{EntryInfo, FileType};
use sandcove_wire::interpreter::ExecutionRequest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::arguments::{At, Code, Create, Extend, Line, Named, Nothing, Of, Port, Snapshot, Write};
use crate::content::{MAX_FILE, file, text};
use crate::running::{self, Ended, Progress};

/// Time that code and commands may take, and sandboxes live, when a call does not say.
const DEFAULT_SECONDS: u32 = 300;

/// Why a call has no result.
pub(crate) enum Refused {
    /// There is no such tool.
    Unknown,
    /// The arguments are not those of the tool.
    Arguments(String),
    /// The server refused, or could not do it.
    Failed(String),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Failed(match error.status() {
            Some(502) => {
                "nothing answers there in the sandbox: run_code needs a template with the code interpreter"
                    .to_owned()
            }
            _ => error.to_string(),
        })
    }
}

fn parse<T: DeserializeOwned>(arguments: Value) -> Result<T, Refused> {
    let arguments = if arguments.is_null() { json!({}) } else { arguments };
    serde_json::from_value(arguments).map_err(|error| Refused::Arguments(error.to_string()))
}

fn said(words: impl Into<String>) -> Ended {
    Ended { content: vec![text(words)], is_error: false }
}

fn limit(seconds: Option<u32>) -> Duration {
    Duration::from_secs(seconds.unwrap_or(DEFAULT_SECONDS).into())
}

/// Calls a tool.
pub(crate) async fn call(
    client: &Client,
    name: &str,
    arguments: Value,
    progress: &mut Progress,
) -> Result<Ended, Refused> {
    match name {
        "sandbox_create" => create(client, parse(arguments)?).await,
        "sandbox_list" => {
            let Nothing {} = parse(arguments)?;
            let sandboxes = client.list().await?;
            Ok(said(json!(sandboxes.iter().map(listed).collect::<Vec<_>>()).to_string()))
        }
        "sandbox_extend" => {
            let Extend { sandbox_id, timeout_seconds } = parse(arguments)?;
            client.set_timeout(&sandbox_id, timeout_seconds).await?;
            Ok(said(format!("sandbox {sandbox_id} ends in {timeout_seconds} s")))
        }
        "sandbox_kill" => {
            let Of { sandbox_id } = parse(arguments)?;
            match client.kill(&sandbox_id).await? {
                true => Ok(said(format!("killed sandbox {sandbox_id}"))),
                false => Err(Refused::Failed(format!("unknown sandbox {sandbox_id}"))),
            }
        }
        "run_code" => run_code(client, parse(arguments)?, progress).await,
        "run_command" => run_command(client, parse(arguments)?, progress).await,
        "read_file" => {
            let At { sandbox_id, path } = parse(arguments)?;
            let read = client.attach(&sandbox_id).await?.read_file(&path, MAX_FILE).await?;
            let content = file(&read.bytes, read.length).map_err(Refused::Failed)?;
            Ok(Ended { content: vec![content], is_error: false })
        }
        "write_file" => {
            let Write { sandbox_id, path, content } = parse(arguments)?;
            let bytes = content.len();
            client.attach(&sandbox_id).await?.write_file(&path, content.into_bytes().into()).await?;
            Ok(said(format!("wrote {bytes} bytes to {path}")))
        }
        "list_files" => {
            let At { sandbox_id, path } = parse(arguments)?;
            if !path.starts_with('/') {
                return Err(Refused::Arguments(format!("`{path}` is not an absolute path")));
            }
            let entries = client.attach(&sandbox_id).await?.list_directory(&path, 1).await?;
            Ok(said(json!(entries.iter().map(entry).collect::<Vec<_>>()).to_string()))
        }
        "port_url" => {
            let Port { sandbox_id, port } = parse(arguments)?;
            Ok(said(client.port_url(&sandbox_id, port).await?))
        }
        "snapshot_create" => {
            let Snapshot { sandbox_id, name } = parse(arguments)?;
            Ok(said(json!(client.snapshot(&sandbox_id, name.as_deref(), true).await?).to_string()))
        }
        "snapshot_list" => {
            let Nothing {} = parse(arguments)?;
            Ok(said(json!(client.snapshots(None, None).await?).to_string()))
        }
        "snapshot_delete" => {
            let Named { snapshot_id } = parse(arguments)?;
            match client.delete_snapshot(&snapshot_id).await? {
                true => Ok(said(format!("deleted snapshot {snapshot_id}"))),
                false => Err(Refused::Failed(format!("unknown snapshot {snapshot_id}"))),
            }
        }
        _ => Err(Refused::Unknown),
    }
}

async fn create(client: &Client, arguments: Create) -> Result<Ended, Refused> {
    let default = NewSandbox::default();
    let new = NewSandbox {
        template: arguments.template.unwrap_or(default.template),
        timeout: arguments.timeout_seconds.unwrap_or(DEFAULT_SECONDS),
        envs: arguments.envs,
        metadata: arguments.metadata,
        allow_internet_access: arguments.internet.unwrap_or(true),
        ..NewSandbox::default()
    };
    Ok(said(json!({ "sandbox_id": client.create(&new).await?.id() }).to_string()))
}

async fn run_code(client: &Client, arguments: Code, progress: &mut Progress) -> Result<Ended, Refused> {
    let Code { sandbox_id, code, language, timeout_seconds } = arguments;
    let request = ExecutionRequest { code, context_id: None, language, env_vars: None };
    let sandbox = client.attach(&sandbox_id).await?;
    Ok(running::code(&sandbox, &request, limit(timeout_seconds), progress).await?)
}

async fn run_command(client: &Client, arguments: Line, progress: &mut Progress) -> Result<Ended, Refused> {
    let Line { sandbox_id, command, cwd, user, envs, background, timeout_seconds } = arguments;
    let command = Command { line: command, envs, cwd, user, ..Command::default() };
    let sandbox = client.attach(&sandbox_id).await?;
    if background {
        let pid = sandbox.start(&command).await?.controls().pid();
        return Ok(said(json!({ "pid": pid }).to_string()));
    }
    Ok(running::command(&sandbox, &command, limit(timeout_seconds), progress).await?)
}

fn listed(sandbox: &ListedSandbox) -> Value {
    json!({
        "sandbox_id": sandbox.sandbox_id,
        "template": if sandbox.alias.is_empty() { &sandbox.template_id } else { &sandbox.alias },
        "state": match sandbox.state { State::Running => "running", State::Paused => "paused" },
        "started_at": sandbox.started_at,
        "end_at": sandbox.end_at,
        "metadata": sandbox.metadata,
    })
}

fn entry(entry: &EntryInfo) -> Value {
    let kind = match entry.r#type() {
        FileType::Directory => "directory",
        FileType::Symlink => "link",
        FileType::File | FileType::Unspecified => "file",
    };
    json!({ "name": entry.name, "type": kind, "path": entry.path, "size": entry.size })
}
