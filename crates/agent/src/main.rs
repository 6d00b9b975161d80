//! `sandcove-agent`: PID 1 of a sandbox. By hand: `sandcove-agent --standalone [--port N] [--token T] [--user U]`.

use std::process::ExitCode;

use sandcove_agent::boot::{self, BootError, Standalone};
use sandcove_wire::boot::AGENT_PORT;
use sandcove_wire::secret::Secret;
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
    match serve(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the daemon cannot run");
            ExitCode::FAILURE
        }
    }
}

/// How the daemon is run: in a sandbox, or by hand.
enum Run {
    Sandbox,
    Standalone(Standalone),
}

fn arguments(mut given: impl Iterator<Item = String>) -> Result<Run, String> {
    const USAGE: &str = "usage: sandcove-agent [--standalone [--port N] [--token T] [--user U]]";
    let mut standalone: Option<Standalone> = None;
    while let Some(name) = given.next() {
        if name == "--standalone" {
            standalone = Some(Standalone { port: AGENT_PORT, ..Standalone::default() });
            continue;
        }
        let (Some(options), Some(value)) = (&mut standalone, given.next()) else { return Err(USAGE.into()) };
        match name.as_str() {
            "--port" => options.port = value.parse().map_err(|_| format!("invalid port `{value}`"))?,
            "--token" => options.token = Some(Secret::new(value)),
            "--user" => options.user = Some(value),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(standalone.map_or(Run::Sandbox, Run::Standalone))
}

/// Runs the daemon on one thread: it nearly always waits, and there is one daemon in every sandbox.
fn serve(run: Run) -> Result<(), BootError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(16)
        .thread_stack_size(1 << 20)
        .build()
        .map_err(|source| BootError::System { what: "start the runtime", source })?;
    let result = runtime.block_on(async {
        match run {
            Run::Sandbox => boot::run_sandbox().await,
            Run::Standalone(options) => boot::run_standalone(options).await,
        }
    });
    // Blocking work in progress must not keep the sandbox from ending.
    runtime.shutdown_background();
    result
}
