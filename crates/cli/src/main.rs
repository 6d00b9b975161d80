//! The `sandcove` command: composition root of the server, and what an operator types.
#![forbid(unsafe_code)]

mod bench;
mod chroot;
mod commands;
mod data_dir;
mod doctor;
mod guest;
mod host;
mod progress;
mod settings;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use sandcove_server::traces::Traces;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use settings::{DataDir, ServerArgs, Settings};

/// Run AI-generated code in sandboxes on your own machines, with unchanged E2B clients.
#[derive(Debug, Parser)]
#[command(name = "sandcove", version, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    place: DataDir,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// start a server in the background and print what clients set
    Up(ServerArgs),
    /// stop the server that `up` started; sandboxes keep running
    Down,
    /// say whether a server is running
    Status {
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// run a server in the foreground
    Serve(ServerArgs),
    /// run code in a sandbox of its own and print what it prints
    Run(commands::run::RunArgs),
    /// look after running sandboxes
    Sandbox(commands::sandbox::SandboxArgs),
    /// look after the keys of this data directory's server, whether it runs or not
    #[command(subcommand)]
    Keys(commands::keys::KeysCommand),
    /// measure how fast a server is
    Bench(bench::BenchArgs),
    /// evaluate prompts, models and the code they write, from a promptfooconfig.yaml
    Eval(Box<commands::eval::EvalArgs>),
    /// look at stored evaluations in a browser
    View(commands::view::ViewArgs),
    /// check whether this host can run sandboxes
    Doctor {
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// parent of all sandboxes; started by the server
    #[command(name = "__spawner", hide = true)]
    Spawner { pool: PathBuf, libexec: PathBuf },
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // An evaluation's exit code 2 means that there was nothing to run.
        Err(error) if error.use_stderr() && std::env::args().nth(1).is_some_and(|verb| verb == "eval") => {
            let _ = error.print();
            return ExitCode::FAILURE;
        }
        Err(error) => error.exit(),
    };
    match start(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(cli: Cli) -> Result<ExitCode> {
    // The spawner forks, so it must stay the only thread of its process: no runtime before this.
    if let Command::Spawner { pool, libexec } = &cli.command {
        sandcove_isolate::spawner_main(Path::new(pool), Path::new(libexec)).context("the spawner failed")?;
        return Ok(ExitCode::SUCCESS);
    }
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?
        .block_on(dispatch(cli))
}

/// Writes the log to standard error, and gives spans to `traces`.
fn observe(traces: Option<&Traces>) {
    let filter = EnvFilter::try_from_env("SANDCOVE_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .with_filter(filter);
    tracing_subscriber::registry().with(traces.map(Traces::layer)).with(log).init();
}

/// A server in the foreground, whose last traces are sent when it has stopped.
async fn serve(settings: &Settings) -> Result<ExitCode> {
    let traces = settings.traces.as_ref().map(|endpoint| Traces::start(endpoint.expose())).transpose()?;
    observe(traces.as_ref());
    let code = commands::serve::serve(settings).await;
    if let Some(traces) = traces {
        traces.stop().await;
    }
    code
}

async fn dispatch(cli: Cli) -> Result<ExitCode> {
    let place = &cli.place;
    if let Command::Serve(args) = &cli.command {
        return serve(&Settings::resolve(place, args)?).await;
    }
    observe(None);
    match cli.command {
        Command::Up(args) => {
            commands::daemon::up(&Settings::resolve(place, &args)?, &options_after("up")).await
        }
        Command::Down => commands::daemon::down(&place.path()?).await,
        Command::Status { json } => commands::daemon::status(&place.path()?, json).await,
        Command::Run(args) => {
            commands::run::run(&Settings::resolve(place, &ServerArgs::default())?, &args).await
        }
        Command::Sandbox(args) => commands::sandbox::sandbox(&place.path()?, args).await,
        Command::Keys(command) => commands::keys::keys(&place.path()?, command).await,
        Command::Bench(args) => bench::bench(&place.path()?, &args).await,
        Command::Eval(args) => commands::eval::eval(*args).await,
        Command::View(args) => commands::view::view(args).await,
        Command::Doctor { json } => doctor::doctor(&place.path()?, json),
        Command::Spawner { .. } | Command::Serve(_) => unreachable!("handled above"),
    }
}

/// This process's arguments without the verb: `up` gives `serve` the very same options.
fn options_after(verb: &str) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == verb) {
        arguments.remove(at);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_spawner_is_not_advertised() {
        assert!(!Cli::command().render_help().to_string().contains("__spawner"));
    }
}
