//! The start command of a template (contract: templates, section 9.4): a program that runs once, and a ready command that says
//! when it can be used.
//!
//! ```text
//!                    ready command succeeds, or the time without one is over
//! waiting ------------------------------------------------------------------> ready
//!    |  |                                                                       ^
//!    |  '- the program exits with 0 -> finished --- ready command succeeds, ----'
//!    |                                              or LAST_TIME is over
//!    '---- the program exits otherwise, or READY_COMMAND_TIMEOUT is over ------> the boot fails
//! ```

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use sandcove_wire::boot::{
    DEFAULT_READY_TIME, READY_COMMAND_TIMEOUT, READY_OUTPUT, START_OUTPUT, Service, login_shell,
};
use sandcove_wire::envd::process::ProcessConfig;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::error::BootError;
use super::output::LineWriter;
use super::services::{StartError, prepare};
use super::{output, ready_port};
use crate::process::Processes;
use crate::process::output::{Channel, Item};
use crate::spawn::{Child, Children, Controls, Exit};
use crate::state::SharedState;

/// Pause after the first attempt of a ready command; it doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Maximum pause between looks into the kernel's tables, which cost next to nothing.
const MAX_PORT_PAUSE: Duration = Duration::from_millis(200);
/// Time that the ready command has once the start command has exited with 0: what it started may still be on its way.
const LAST_TIME: Duration = Duration::from_secs(20);
/// Time to read the last output of a start command that has ended. What it left may hold its streams open for ever.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(100);

/// Starts the program of `service` and waits until it can be used. The returned task logs how it ends.
pub(super) async fn run(
    service: Service,
    state: &SharedState,
    children: &Arc<Children>,
    processes: &Processes,
    keepers: &mut JoinSet<()>,
) -> Result<(), BootError> {
    let (mut exit, output) = match service.command.is_empty() {
        true => (None, None),
        false => {
            let started = start(&service, state, processes).await;
            let (exit, output) = started.map_err(|error| BootError::StartCommand(error.to_string()))?;
            (Some(exit), Some(output))
        }
    };
    let ready = is_ready(&service, state, children);
    let outcome = wait(ready, &mut exit, service.ready_command.is_some()).await;
    if let (None, Some(output)) = (&exit, output) {
        // The host reads the log as soon as it knows the outcome.
        let _ = timeout(OUTPUT_TIMEOUT, output).await;
    }
    outcome?;
    if let Some(exit) = exit {
        keepers.spawn(async move {
            if let Ok(exit) = exit.await {
                tracing::info!("the start command has ended: {exit}");
            }
        });
    }
    Ok(())
}

/// Starts the program. The receiver gets how it exits: what it left may go on, and write. The task writes the output to the log.
async fn start(
    service: &Service,
    state: &SharedState,
    processes: &Processes,
) -> Result<(oneshot::Receiver<Exit>, JoinHandle<()>), StartError> {
    let (launch, account) = prepare(service, &service.command, &[], Controls::Workload, state)?;
    let config = ProcessConfig {
        cmd: service.command.first().cloned().unwrap_or_default(),
        args: service.command.iter().skip(1).cloned().collect(),
        envs: service.env.clone(),
        cwd: Some(launch.directory()),
    };
    let (mut output, exit) = processes.start_template_program(launch, config, account.uid).await?;
    let written = tokio::spawn(async move {
        let [mut stdout, mut stderr] =
            [Channel::Stdout, Channel::Stderr].map(|channel| LineWriter::new(START_OUTPUT, channel));
        while let Some(Item::Data(chunk)) = output.next().await {
            let writer = if chunk.channel == Channel::Stderr { &mut stderr } else { &mut stdout };
            writer.write(&chunk.bytes);
        }
    });
    Ok((exit, written))
}

/// Waits for `ready`, or for what happens to the start command before that. Leaves `exit` empty if it has ended.
async fn wait(
    ready: impl Future<Output = ()>,
    exit: &mut Option<oneshot::Receiver<Exit>>,
    has_ready_command: bool,
) -> Result<(), BootError> {
    tokio::pin!(ready);
    let mut deadline = Instant::now() + READY_COMMAND_TIMEOUT;
    let mut finished = false;
    loop {
        let ended = async {
            match exit.as_mut() {
                Some(exit) => exit.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = &mut ready => return Ok(()),
            ended = ended => {
                *exit = None;
                match ended {
                    Ok(Exit::Code(0)) if !has_ready_command => return Ok(()),
                    Ok(Exit::Code(0)) => {
                        finished = true;
                        deadline = deadline.min(Instant::now() + LAST_TIME);
                    }
                    Ok(exit) => return Err(BootError::StartCommand(exit.to_string())),
                    Err(_) => return Err(BootError::StartCommand("its end was not reported".to_owned())),
                }
            }
            () = sleep_until(deadline) => {
                if finished {
                    tracing::warn!("the ready command does not succeed; the start command has exited with 0");
                    return Ok(());
                }
                let minutes = READY_COMMAND_TIMEOUT.as_secs() / 60;
                return Err(BootError::ReadyCommand(format!("ready command timed out after {minutes}m0s")));
            }
        }
    }
}

/// Waits until the ready command succeeds, or for the time that counts without one.
async fn is_ready(service: &Service, state: &SharedState, children: &Arc<Children>) {
    let Some(command) = &service.ready_command else { return sleep(DEFAULT_READY_TIME).await };
    let port = ready_port::port(command);
    let mut pause = FIRST_PAUSE;
    let mut last = None;
    loop {
        let outcome = match port {
            Some(port) if ready_port::is_open(port) => return,
            Some(port) => format!("nothing listens on port {port}"),
            None => match attempt(service, command, state, children).await {
                Ok(Exit::Code(0)) => return,
                Ok(exit) => exit.to_string(),
                Err(error) => error.to_string(),
            },
        };
        // A look into the kernel's tables is no attempt of the command: only the first says something.
        if port.is_none() || last.as_ref() != Some(&outcome) {
            // In one write, as the lines of output are.
            let line = format!("{READY_OUTPUT}the ready command has not succeeded yet: {outcome}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            last = Some(outcome);
        }
        sleep(pause).await;
        pause = (pause * 2).min(if port.is_some() { MAX_PORT_PAUSE } else { MAX_PAUSE });
    }
}

async fn attempt(
    service: &Service,
    command: &str,
    state: &SharedState,
    children: &Arc<Children>,
) -> Result<Exit, StartError> {
    let line = login_shell(command);
    let (launch, _) = prepare(service, &line, &[], Controls::Workload, state)?;
    let Child { exit, .. } = children.spawn(&launch, output::streams(READY_OUTPUT)?).await?;
    exit.await.map_err(|_| StartError::NotReported)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exits(exit: Exit) -> Option<oneshot::Receiver<Exit>> {
        let (sender, receiver) = oneshot::channel();
        sender.send(exit).unwrap();
        Some(receiver)
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_of_the_start_command_is_one_of_the_boot() {
        let outcome = wait(std::future::pending(), &mut exits(Exit::Code(3)), true).await;
        assert_eq!(outcome.unwrap_err().to_string(), "start command failed: exit status 3");
        let killed = Exit::Signal { number: 9, core_dumped: false };
        let outcome = wait(sleep(Duration::from_secs(1)), &mut exits(killed), false).await;
        assert_eq!(outcome.unwrap_err().to_string(), "start command failed: signal: killed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_command_that_finishes_leaves_time_to_its_daemon() {
        let started = Instant::now();
        wait(sleep(Duration::from_secs(3)), &mut exits(Exit::Code(0)), true).await.unwrap();
        assert_eq!(started.elapsed().as_secs(), 3);
        wait(std::future::pending(), &mut exits(Exit::Code(0)), true).await.unwrap();
        assert_eq!(started.elapsed().as_secs(), 3 + LAST_TIME.as_secs());
        let started = Instant::now();
        wait(std::future::pending(), &mut exits(Exit::Code(0)), false).await.unwrap();
        assert_eq!(started.elapsed().as_secs(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_ready_command_has_ten_minutes() {
        let (_running, exit) = oneshot::channel();
        let mut exit = Some(exit);
        let outcome = wait(std::future::pending(), &mut exit, true).await;
        let text = "ready command failed: ready command timed out after 10m0s";
        assert_eq!(outcome.unwrap_err().to_string(), text);
        wait(sleep(Duration::from_secs(599)), &mut exit, true).await.unwrap();
        assert!(exit.is_some());
    }
}
