//! `sandcove-agent`: PID 1 of a sandbox. By hand: `sandcove-agent --standalone [--port N] [--token T] [--user U]`. For a step of a
//! template build: `sandcove-agent --step JSON`.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use sandcove_agent::boot::{self, BootError, Standalone};
use sandcove_agent::step;
use sandcove_wire::boot::AGENT_PORT;
use sandcove_wire::secret::Secret;
use sandcove_wire::step::OPTION;
use tracing::Level;

fn main() -> ExitCode {
    boot::init_log(Level::INFO);
    let run = match arguments(std::env::args().skip(1)) {
        Ok(run) => run,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let served = match run {
        Run::Step(message) => return run_step(&message),
        Run::Daemon(daemon) => serve(daemon),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the daemon cannot run");
            ExitCode::FAILURE
        }
    }
}

/// The task that the arguments give the program.
enum Run {
    Daemon(Daemon),
    Step(String),
}

/// How the daemon is run: in a sandbox, or by hand.
enum Daemon {
    Sandbox,
    Standalone(Standalone),
}

fn arguments(mut given: impl Iterator<Item = String>) -> Result<Run, String> {
    const USAGE: &str =
        "usage: sandcove-agent [--standalone [--port N] [--token T] [--user U] | --step JSON]";
    let mut standalone: Option<Standalone> = None;
    while let Some(name) = given.next() {
        if name == "--standalone" {
            standalone = Some(Standalone { port: AGENT_PORT, ..Standalone::default() });
            continue;
        }
        if name == OPTION && standalone.is_none() {
            return given
                .next()
                .filter(|_| given.next().is_none())
                .map(Run::Step)
                .ok_or_else(|| USAGE.into());
        }
        let (Some(options), Some(value)) = (&mut standalone, given.next()) else { return Err(USAGE.into()) };
        match name.as_str() {
            "--port" => options.port = value.parse().map_err(|_| format!("invalid port `{value}`"))?,
            "--token" => options.token = Some(Secret::new(value)),
            "--user" => options.user = Some(value),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(Run::Daemon(standalone.map_or(Daemon::Sandbox, Daemon::Standalone)))
}

/// Runs a step of a template build; see [`sandcove_wire::step`].
fn run_step(message: &str) -> ExitCode {
    let outcome = step::run(message).map_err(|error| error.to_string());
    let written = outcome.and_then(|outcome| {
        let line = serde_json::to_string(&outcome).map_err(|error| error.to_string())?;
        writeln!(std::io::stdout(), "{line}").map_err(|error| format!("failed to write the outcome: {error}"))
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{}", message.replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

/// Runs the daemon on one thread: it nearly always waits, and there is one daemon in every sandbox.
fn serve(daemon: Daemon) -> Result<(), BootError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(16)
        .thread_stack_size(1 << 20)
        .build()
        .map_err(|source| BootError::System { what: "start the runtime", source })?;
    let result = runtime.block_on(async {
        match daemon {
            Daemon::Sandbox => boot::run_sandbox().await,
            Daemon::Standalone(options) => boot::run_standalone(options).await,
        }
    });
    // Blocking work in progress must not keep the sandbox from ending.
    runtime.shutdown_background();
    result
}
