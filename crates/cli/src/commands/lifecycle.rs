//! `sandcove sandbox create`, `pause`, `park`, `resume`, `timeout` and `fork`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use sandcove_client::{Client, NewSandbox};
use sandcove_wire::api::sandbox::{AutoResume, MemoryPlace, VolumeMount};
use sandcove_wire::id::SandboxId;
use serde_json::json;

use super::candidates;
use super::done::Done;
use super::exec::{self, Left, ShellArgs};
use super::sandbox::without_tokens;
use super::{timeout, variable};
use crate::output::{note, out};

/// Time until a sandbox ends, unless it is chosen, seconds.
const DEFAULT_TIMEOUT: u32 = 300;
/// Time that a sandbox with an open shell has left when nothing extends it, seconds.
const KEPT: u32 = 30;
/// Time by which a sandbox may end sooner than it was asked to without a word, for clocks that differ, seconds.
const TOLERANCE: i64 = 60;
/// How often a sandbox with an open shell is extended.
const EXTEND: Duration = Duration::from_secs(5);

/// Arguments of `create`.
#[derive(Debug, Args)]
pub struct SandboxCreateArgs {
    /// name or id of a template, or id of a snapshot
    #[arg(default_value = "base")]
    #[arg(add = candidates::templates())]
    template: String,
    /// print the id and leave the sandbox running, instead of opening a shell that it ends with
    #[arg(short, long)]
    detach: bool,
    /// time until the sandbox is killed or paused, such as 300 or 5m [default: 300; with a shell, some seconds after it]
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    timeout: Option<u32>,
    /// what happens at the timeout
    #[arg(long, alias = "lifecycle.ontimeout", value_enum, default_value = "kill")]
    on_timeout: OnTimeout,
    /// resume the paused sandbox when something connects to it
    #[arg(long, alias = "lifecycle.autoresume")]
    auto_resume: bool,
    /// set an environment variable for every process; repeatable
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    envs: Vec<(String, String)>,
    /// label the sandbox; repeatable
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
    metadata: Vec<(String, String)>,
    /// mount a volume; repeatable
    #[arg(short, long, visible_alias = "mount", value_name = "NAME:PATH", value_parser = mount)]
    volume: Vec<VolumeMount>,
    /// refuse connections to the internet
    #[arg(long)]
    no_internet: bool,
    #[command(flatten)]
    shell: ShellArgs,
    /// print JSON; with --detach
    #[arg(long, requires = "detach")]
    json: bool,
}

/// The end of a session at its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnTimeout {
    /// the sandbox is killed
    Kill,
    /// the sandbox is paused, with its processes
    Pause,
}

/// Parses `NAME:PATH`.
pub fn mount(text: &str) -> Result<VolumeMount, String> {
    match text.split_once(':') {
        Some((name, path)) if !name.is_empty() && path.starts_with('/') => {
            Ok(VolumeMount { name: name.to_owned(), path: path.to_owned() })
        }
        _ => Err(format!("expected NAME:PATH with an absolute path, not `{text}`")),
    }
}

/// Creates a sandbox; prints its id, or opens a shell in it and kills it afterwards.
pub async fn create(client: &Client, args: SandboxCreateArgs) -> Result<ExitCode> {
    if !args.detach && !std::io::stdin().is_terminal() {
        bail!("a shell needs a terminal\nhint: pass --detach to create a sandbox and print its id");
    }
    let pauses = args.on_timeout == OnTimeout::Pause;
    if args.auto_resume && !pauses {
        bail!("--auto-resume needs --on-timeout pause: a killed sandbox cannot be resumed");
    }
    let new = NewSandbox {
        template: args.template,
        timeout: args.timeout.unwrap_or(DEFAULT_TIMEOUT),
        envs: args.envs.into_iter().collect(),
        metadata: args.metadata.into_iter().collect(),
        allow_internet_access: !args.no_internet,
        auto_pause: pauses,
        auto_resume: args.auto_resume.then_some(AutoResume { enabled: true }),
        volume_mounts: args.volume,
        ..NewSandbox::default()
    };
    let sandbox = client.create(&new).await?;
    let id = sandbox.id();
    if args.detach {
        match args.json {
            true => out!("{}", json!({ "sandboxID": id })),
            false => out!("{id}"),
        }
        return Ok(ExitCode::SUCCESS);
    }
    note!("sandbox {id}");
    let extending = tokio::spawn(extend(client.clone(), id.clone(), args.timeout.unwrap_or(KEPT)));
    let ended = exec::shell(client, &sandbox, Vec::new(), args.shell).await;
    extending.abort();
    match (&ended, args.timeout) {
        // With a timeout of its own it goes on until then; otherwise nobody would miss it.
        (Ok(Left::Ended(_)) | Err(_), None) => drop(client.kill(id).await?),
        (Ok(Left::Detached), None) => {
            client.set_timeout(id, DEFAULT_TIMEOUT).await?;
            note!(
                "the sandbox goes on for {DEFAULT_TIMEOUT} s; `sandcove sandbox timeout {id} 1h` gives it more"
            );
        }
        (_, Some(_)) => {}
    }
    ended.map(Left::status)
}

/// Sets the end of a sandbox, and says when the server ends it sooner than that.
pub async fn set_timeout(client: &Client, id: &SandboxId, timeout: u32, as_json: bool) -> Result<ExitCode> {
    client.set_timeout(id, timeout).await?;
    // The end is set; that it cannot be read, as of a sandbox that has just been killed, is no failure.
    let info = client.info(id).await.unwrap_or_default();
    let end: Option<Timestamp> = info["endAt"].as_str().and_then(|end| end.parse().ok());
    if let Some(end) = end
        && end.as_second() - Timestamp::now().as_second() + TOLERANCE < i64::from(timeout)
    {
        note!("sandbox {id} ends at {end:.0}: its sessions may not be longer");
    }
    if as_json {
        out!("{}", json!({ "sandboxID": id, "endAt": end }));
    }
    Ok(ExitCode::SUCCESS)
}

/// Moves the end of a sandbox ahead, again and again. It is gone when the server says so.
async fn extend(client: Client, id: SandboxId, timeout: u32) {
    loop {
        tokio::time::sleep(EXTEND).await;
        match client.set_timeout(&id, timeout).await {
            Err(error) if error.status() == Some(404) => return,
            _ => {}
        }
    }
}

/// Arguments of `pause`.
#[derive(Debug, Args)]
pub struct PauseArgs {
    /// ids of sandboxes
    #[arg(required = true)]
    #[arg(add = candidates::running())]
    ids: Vec<SandboxId>,
    /// keep only the files, not the processes
    #[arg(long)]
    files_only: bool,
    /// print JSON
    #[arg(long)]
    json: bool,
}

/// Pauses sandboxes. One that is paused already is no error.
pub async fn pause(client: &Client, args: PauseArgs) -> Result<ExitCode> {
    let mut done = Done::new(args.json);
    for id in &args.ids {
        match client.pause(id, !args.files_only).await? {
            true => done.add(id, json!({ "sandboxID": id })),
            false => note!("sandbox {id} is paused already"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Arguments of `park`.
#[derive(Debug, Args)]
pub struct ParkArgs {
    /// ids of sandboxes
    #[arg(required_unless_present = "all")]
    #[arg(add = candidates::sandboxes())]
    ids: Vec<SandboxId>,
    /// all paused sandboxes whose memory is in the host's, as before a reboot
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// print JSON
    #[arg(long)]
    json: bool,
}

/// Brings the memory of paused sandboxes to disk. With `--all`, one that cannot be stored does not keep others from it.
pub async fn park(client: &Client, args: ParkArgs) -> Result<ExitCode> {
    let mut done = Done::new(args.json);
    if !args.all {
        for id in &args.ids {
            client.park(id).await?;
            done.add(id, json!({ "sandboxID": id }));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut code = ExitCode::SUCCESS;
    for sandbox in client.list().await? {
        if !sandbox.kept_memory.is_some_and(|memory| memory.place == MemoryPlace::Host) {
            continue;
        }
        let id = &sandbox.sandbox_id;
        match client.park(id).await {
            Ok(()) => done.add(id, json!({ "sandboxID": id })),
            Err(error) => {
                note!("{error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// Arguments of `resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// ids of sandboxes
    #[arg(required = true)]
    #[arg(add = candidates::paused())]
    ids: Vec<SandboxId>,
    /// time until the end of the sandboxes, such as 300 or 5m
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = timeout)]
    timeout: u32,
    /// start from the files only: processes that were kept are lost
    #[arg(long)]
    files_only: bool,
    /// print JSON
    #[arg(long)]
    json: bool,
}

/// Resumes sandboxes.
pub async fn resume(client: &Client, args: ResumeArgs) -> Result<ExitCode> {
    let mut done = Done::new(args.json);
    for id in &args.ids {
        client.resume(id, args.timeout, !args.files_only).await?;
        done.add(id, json!({ "sandboxID": id }));
    }
    Ok(ExitCode::SUCCESS)
}

/// Arguments of `fork`.
#[derive(Debug, Args)]
pub struct ForkArgs {
    /// id of the sandbox
    #[arg(add = candidates::sandboxes())]
    id: SandboxId,
    /// number of forks
    #[arg(short = 'n', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    count: u32,
    /// time until the end of the forks, such as 300 or 5m
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = timeout)]
    timeout: u32,
    /// print JSON
    #[arg(long)]
    json: bool,
}

/// Starts sandboxes with the files of another, and prints their ids.
pub async fn fork(client: &Client, args: ForkArgs) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    let forks = client.fork(&args.id, args.count, args.timeout).await;
    let mut done = Done::new(args.json);
    for fork in forks.with_context(|| format!("failed to fork `{}`, which has to be running", args.id))? {
        match (fork.sandbox, fork.error) {
            (Some(sandbox), _) => done.add(&sandbox.sandbox_id, without_tokens(json!(sandbox))),
            (None, error) => {
                let reason = error.map_or_else(|| "no reason given".to_owned(), |error| error.message);
                note!("error: failed to start a fork of {}: {reason}", args.id);
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_mounted_at_absolute_paths() {
        assert_eq!(
            mount("data:/mnt/data").unwrap(),
            VolumeMount { name: "data".into(), path: "/mnt/data".into() }
        );
        for text in ["data", ":/mnt", "data:mnt", "data:"] {
            assert!(mount(text).unwrap_err().contains(text));
        }
    }
}
