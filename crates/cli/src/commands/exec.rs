//! `sandcove sandbox exec` and `connect`: a command in a sandbox, with input, terminal and signals as if it ran here.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use sandcove_client::{
    Client, Command, CommandEvent, CommandExit, Controls, Input, Process, ProcessEvent, Sandbox,
};
use sandcove_dockerfile::quoted;
use sandcove_wire::id::SandboxId;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::candidates;
use super::variable;
use crate::detach::{DetachKeys, Watch};
use crate::output::{self, note, out};
use crate::signals::{BROKEN_PIPE, Caught, Signals};
use crate::terminal::{self, RawMode};

/// How long a signal may take to reach the command before this process gives up.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Arguments of `exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// id of the sandbox
    #[arg(add = candidates::sandboxes())]
    id: SandboxId,
    /// pass on standard input even if it is a terminal; pipes and files are always passed on
    #[arg(short, long)]
    interactive: bool,
    /// run the command on a terminal; the default if standard input and output are terminals
    #[arg(short, long, conflicts_with = "detach")]
    tty: bool,
    /// run the command without a terminal
    #[arg(short = 'T', long, conflicts_with = "tty")]
    no_tty: bool,
    #[command(flatten)]
    keys: DetachArgs,
    /// set an environment variable for the command; repeatable
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    envs: Vec<(String, String)>,
    /// run the command in the background, and print its process id
    #[arg(short, long, short_alias = 'b', visible_alias = "background", conflicts_with = "interactive")]
    detach: bool,
    /// user to run the command as
    #[arg(short, long)]
    user: Option<String>,
    /// directory to run the command in
    #[arg(short = 'w', long, short_alias = 'c', visible_alias = "workdir", value_name = "DIR")]
    cwd: Option<String>,
    /// print the process id as JSON; with --detach
    #[arg(long, requires = "detach")]
    json: bool,
    /// command and its arguments; a single one is a line for the shell
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

/// Arguments of `connect`.
#[derive(Debug, Args)]
pub struct ConnectArgs {
    /// id of the sandbox
    #[arg(add = candidates::sandboxes())]
    id: SandboxId,
    /// connect to this process instead of opening a shell: one with a terminal, such as one that was detached from
    #[arg(long, conflicts_with_all = ["envs", "user", "cwd"])]
    pid: Option<u32>,
    /// set an environment variable for the shell; repeatable
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    envs: Vec<(String, String)>,
    #[command(flatten)]
    shell: ShellArgs,
}

/// Options of an interactive shell.
#[derive(Debug, Args)]
pub struct ShellArgs {
    /// user to run the shell as
    #[arg(short, long)]
    user: Option<String>,
    /// directory to start the shell in
    #[arg(short = 'w', long, short_alias = 'c', value_name = "DIR")]
    cwd: Option<String>,
    #[command(flatten)]
    keys: DetachArgs,
}

/// The option with the keys that detach a terminal.
#[derive(Debug, Args)]
pub struct DetachArgs {
    /// keys that detach the terminal, separated by commas; the process goes on
    #[arg(long, value_name = "KEYS", default_value = "ctrl-p,ctrl-q")]
    detach_keys: DetachKeys,
}

/// Runs a command, and returns its exit status.
pub async fn exec(client: &Client, args: ExecArgs) -> Result<ExitCode> {
    let sandbox = client.attach(&args.id).await?;
    let tty = args.tty || (!args.no_tty && !args.detach && terminal::is_interactive());
    let piped = args.interactive || !std::io::stdin().is_terminal();
    let input = match tty {
        true => Input::Terminal(terminal::size()),
        false if piped && !args.detach => Input::Pipe,
        false => Input::Closed,
    };
    let line = match &args.command[..] {
        // A line for the shell: `sandbox exec ID "ls | wc -l"`.
        [line] if !line.is_empty() => line.clone(),
        words => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    };
    let command =
        Command { line, envs: args.envs.into_iter().collect(), cwd: args.cwd, user: args.user, input };
    if args.detach {
        let pid = sandbox.start(&command).await?.controls().pid();
        match args.json {
            true => out!("{}", json!({ "pid": pid })),
            false => out!("{pid}"),
        }
        return Ok(ExitCode::SUCCESS);
    }
    foreground(client, &sandbox, command, &args.keys).await.map(Left::status)
}

/// Opens an interactive shell, or connects to a process.
pub async fn connect(client: &Client, args: ConnectArgs) -> Result<ExitCode> {
    if !std::io::stdin().is_terminal() {
        bail!(
            "`connect` needs a terminal\nhint: `sandcove sandbox exec {} bash` reads commands from a pipe",
            args.id
        );
    }
    let sandbox = client.attach(&args.id).await?;
    if let Some(pid) = args.pid {
        let mut signals = Signals::catch()?;
        let input = Input::Terminal(terminal::size());
        let process = sandbox.connect_process(pid, input).await;
        let process = process.with_context(|| format!("failed to connect to process {pid}"))?;
        return watch(client, &sandbox, process, input, &mut signals, &args.shell.keys)
            .await
            .map(Left::status);
    }
    shell(client, &sandbox, args.envs, args.shell).await.map(Left::status)
}

/// How a process left this terminal.
#[derive(Debug)]
pub enum Left {
    /// The process ended, and this is its exit status.
    Ended(ExitCode),
    /// The process goes on in the sandbox.
    Detached,
}

impl Left {
    /// The exit status of the command.
    pub fn status(self) -> ExitCode {
        match self {
            Self::Ended(status) => status,
            Self::Detached => ExitCode::SUCCESS,
        }
    }
}

/// Opens an interactive shell in a sandbox, and returns how it left the terminal.
pub async fn shell(
    client: &Client,
    sandbox: &Sandbox,
    envs: Vec<(String, String)>,
    shell: ShellArgs,
) -> Result<Left> {
    let input = Input::Terminal(terminal::size());
    let envs = envs.into_iter().collect();
    let command = Command { envs, cwd: shell.cwd, user: shell.user, input, ..Command::default() };
    foreground(client, sandbox, command, &shell.keys).await
}

async fn foreground(
    client: &Client,
    sandbox: &Sandbox,
    mut command: Command,
    keys: &DetachArgs,
) -> Result<Left> {
    if let Input::Terminal(_) = command.input
        && let Ok(kind) = std::env::var("TERM")
    {
        command.envs.entry("TERM".to_owned()).or_insert(kind);
    }
    // Before the command starts, so that no signal is missed.
    let mut signals = Signals::catch()?;
    let process = sandbox.start(&command).await?;
    watch(client, sandbox, process, command.input, &mut signals, keys).await
}

/// Copies input and output of a process until it ends or is detached from.
async fn watch(
    client: &Client,
    sandbox: &Sandbox,
    process: Process,
    input: Input,
    signals: &mut Signals,
    keys: &DetachArgs,
) -> Result<Left> {
    let pid = process.controls().pid();
    let raw = matches!(input, Input::Terminal(_)).then(RawMode::enter);
    let outcome = attach(process, input, signals, &keys.detach_keys).await;
    drop(raw);
    match outcome {
        Ok(Ended::Exit(exit)) => Ok(Left::Ended(exit.shell_status().into())),
        Ok(Ended::OutputClosed) => Ok(Left::Ended(BROKEN_PIPE.into())),
        Ok(Ended::GivenUp(signal)) => Ok(Left::Ended(signal.status().into())),
        Ok(Ended::Detached) => {
            note!(
                "\ndetached from process {pid}, which goes on\nhint: `sandcove sandbox connect {} --pid {pid}` connects to it again",
                sandbox.id()
            );
            Ok(Left::Detached)
        }
        Err(error) if is_gone(client, sandbox.id()).await => {
            Err(error.context(format!("sandbox {} was killed or reached its end of life", sandbox.id())))
        }
        Err(error) => Err(error),
    }
}

/// Whether the server knows that a sandbox has ended.
pub async fn is_gone(client: &Client, id: &SandboxId) -> bool {
    matches!(client.info(id).await, Err(error) if error.status() == Some(404))
}

/// How an attached command ended.
#[derive(Debug)]
enum Ended {
    /// The command exited, by itself or by a signal that was passed on.
    Exit(CommandExit),
    /// The command was terminated because its output is not read any more.
    OutputClosed,
    /// The keys that detach were typed; the command goes on.
    Detached,
    /// The command was killed: it continued after one signal, and a second one arrived.
    GivenUp(Caught),
}

/// Copies input and output until the process ends or is detached from, and passes signals on.
async fn attach(process: Process, input: Input, signals: &mut Signals, keys: &DetachKeys) -> Result<Ended> {
    let controls = process.controls();
    let (detach, mut detached) = mpsc::channel(1);
    let _feeder = match input {
        Input::Closed => None,
        Input::Terminal(_) if std::io::stdin().is_terminal() => {
            Some(AbortOnDrop(tokio::spawn(feed_keys(controls.clone(), Watch::new(keys), detach.clone()))))
        }
        Input::Pipe | Input::Terminal(_) => Some(AbortOnDrop(tokio::spawn(feed(controls.clone())))),
    };
    let _resizer = match input {
        Input::Terminal(_) => Some(AbortOnDrop(tokio::spawn(follow_size(controls.clone())))),
        Input::Closed | Input::Pipe => None,
    };
    let mut events = events(process);
    let mut first = None;
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(Ok(ProcessEvent::Output(CommandEvent::Stdout(bytes)))) => {
                    if output::write(&bytes).is_err() {
                        pass_on(&controls, "TERM").await;
                        return Ok(Ended::OutputClosed);
                    }
                }
                Some(Ok(ProcessEvent::Output(CommandEvent::Stderr(bytes)))) => output::write_error(&bytes),
                Some(Ok(ProcessEvent::Exit(exit))) => return Ok(Ended::Exit(exit)),
                Some(Err(error)) => return Err(error.into()),
                None => bail!("the end of the command was not reported"),
            },
            // The channel does not close: this function has a sender.
            Some(()) = detached.recv() => return Ok(Ended::Detached),
            signal = signals.next() => match first {
                None => {
                    first = Some(signal);
                    pass_on(&controls, signal.name).await;
                }
                Some(signal) => {
                    pass_on(&controls, "KILL").await;
                    return Ok(Ended::GivenUp(signal));
                }
            },
        }
    }
}

/// Reads the events of a process into a channel, whose receiver is safe to cancel.
fn events(mut process: Process) -> mpsc::Receiver<sandcove_client::Result<ProcessEvent>> {
    let (send, receive) = mpsc::channel(16);
    tokio::spawn(async move {
        loop {
            let event = process.next().await;
            let is_last = !matches!(event, Ok(ProcessEvent::Output(_)));
            if send.send(event).await.is_err() || is_last {
                return;
            }
        }
    });
    receive
}

/// Writes standard input to the process, until either end is closed.
pub async fn feed(controls: Controls) {
    let mut stdin = terminal::stdin();
    while let Some(chunk) = stdin.recv().await {
        if controls.write(chunk.into()).await.is_err() {
            return;
        }
    }
    let _ = controls.close_input().await;
}

/// Writes what is typed to the process, until the keys that detach are typed. One that reads nothing can be detached from too.
async fn feed_keys(controls: Controls, mut watch: Watch, detach: mpsc::Sender<()>) {
    let mut stdin = terminal::stdin();
    while let Some(chunk) = stdin.recv().await {
        let (typed, is_detached) = watch.take(&chunk);
        if !typed.is_empty() {
            let _ = controls.write(typed.into()).await;
        }
        if is_detached {
            let _ = detach.send(()).await;
            return;
        }
    }
    let _ = controls.close_input().await;
}

/// Resizes the terminal of the process whenever this one is resized.
async fn follow_size(controls: Controls) {
    let Ok(mut changes) = signal(SignalKind::window_change()) else { return };
    // The size may have changed while the process was started.
    let _ = controls.resize(terminal::size()).await;
    while changes.recv().await.is_some() {
        let _ = controls.resize(terminal::size()).await;
    }
}

async fn pass_on(controls: &Controls, name: &str) {
    match tokio::time::timeout(SIGNAL_TIMEOUT, controls.signal(name)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => note!("error: failed to send SIG{name} to the command: {error}"),
        Err(_) => note!("error: failed to send SIG{name} to the command: the sandbox does not answer"),
    }
}

/// A task that is aborted when its handle is dropped.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
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
}
