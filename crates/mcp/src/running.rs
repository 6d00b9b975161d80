//! Code and commands that run: their output, progress, timeouts, and their end when nobody waits for them any more.

use std::time::Duration;

use sandcove_client::{Command, CommandEvent, CommandExit, Controls, Process, ProcessEvent, Sandbox};
use sandcove_wire::interpreter::ExecutionRequest;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::content::{MAX_PICTURES, Parts, Tail, text};
use crate::event::ExecutionEvent;
use crate::message;

/// Time between two notifications of progress: output comes faster than anybody reads, and silent commands are not dead.
const MIN_INTERVAL: Duration = Duration::from_millis(200);
const MAX_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum length of an event, bytes: that of the pictures of an answer, and of what else their results have. A sandbox chooses how long events are.
const MAX_EVENT: usize = MAX_PICTURES / 2 * 3;

/// Where progress of a request is reported.
pub(crate) struct Progress {
    /// The client's token; without one it wants no reports.
    token: Option<Value>,
    sender: UnboundedSender<Value>,
    step: u64,
    begun: Instant,
    last: Instant,
}

impl Progress {
    pub(crate) fn new(token: Option<Value>, sender: UnboundedSender<Value>) -> Self {
        let now = Instant::now();
        Self { token, sender, step: 0, begun: now, last: now }
    }

    /// Reports new output, unless the last report was a moment ago.
    fn output(&mut self, tail: &Tail) {
        if self.step == 0 || self.last.elapsed() >= MIN_INTERVAL {
            self.report(tail.last_line());
        }
    }

    /// Waits until the silence should be broken.
    async fn silence(&self) {
        tokio::time::sleep_until(self.last + MAX_INTERVAL).await;
    }

    fn report(&mut self, text: &str) {
        (self.step, self.last) = (self.step + 1, Instant::now());
        if let Some(token) = &self.token {
            let _ = self.sender.send(message::progress(token, self.step, text));
        }
    }

    fn report_time(&mut self) {
        self.report(&format!("running for {} s", self.begun.elapsed().as_secs()));
    }
}

/// Kills a command unless it has ended. The sender is held until it is killed, so that its receiver can wait for that.
struct Leash {
    controls: Option<Controls>,
    sender: UnboundedSender<Value>,
}

impl Drop for Leash {
    fn drop(&mut self) {
        if let (Some(controls), Ok(runtime)) = (self.controls.take(), tokio::runtime::Handle::try_current()) {
            let sender = self.sender.clone();
            runtime.spawn(async move {
                let _ = controls.signal("KILL").await;
                drop(sender);
            });
        }
    }
}

/// The outcome of code or a command.
pub(crate) struct Ended {
    pub(crate) content: Vec<Value>,
    pub(crate) is_error: bool,
}

/// Runs a command to its end. If the future is dropped, the command and what it started are killed.
pub(crate) async fn command(
    sandbox: &Sandbox,
    command: &Command,
    limit: Duration,
    progress: &mut Progress,
) -> sandcove_client::Result<Ended> {
    let (sandbox, command, sender) = (sandbox.clone(), command.clone(), progress.sender.clone());
    // In a task of its own: the agent completes a start that is dropped, and the command would run on.
    let started = tokio::spawn(async move {
        let process = sandbox.start(&command).await?;
        let leash = Leash { controls: Some(process.controls()), sender };
        Ok::<_, sandcove_client::Error>((process, leash))
    });
    let (mut process, mut leash) = match started.await {
        Ok(started) => started?,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and this with it.
            Err(_) => std::future::pending().await,
        },
    };
    let (mut stdout, mut stderr) = (Tail::default(), Tail::default());
    let exit = tokio::time::timeout(limit, follow(&mut process, &mut stdout, &mut stderr, progress)).await;
    let status = match exit {
        Ok(exit) => {
            leash.controls = None;
            Some(exit?)
        }
        Err(_) => None,
    };
    let mut content = Vec::new();
    for (name, tail) in [("stdout", stdout), ("stderr", stderr)] {
        if !tail.is_empty() {
            content.push(text(format!("{name}:\n{}", tail.finish())));
        }
    }
    let (words, is_error) = match status {
        Some(exit) if exit.code == 0 => ("exit status 0".to_owned(), false),
        Some(exit) => (exit.status, true),
        None => (format!("killed after {} s, the timeout of the command", limit.as_secs()), true),
    };
    content.push(text(words));
    Ok(Ended { content, is_error })
}

async fn follow(
    process: &mut Process,
    stdout: &mut Tail,
    stderr: &mut Tail,
    progress: &mut Progress,
) -> sandcove_client::Result<CommandExit> {
    // A channel, because reading the next event is not safe to cancel.
    let (send, mut receive) = tokio::sync::mpsc::channel(16);
    let reading = async {
        loop {
            let event = process.next().await;
            let is_last = !matches!(event, Ok(ProcessEvent::Output(_)));
            if send.send(event).await.is_err() || is_last {
                return;
            }
        }
    };
    let taking = async {
        loop {
            tokio::select! {
                event = receive.recv() => match event {
                    Some(Ok(ProcessEvent::Output(output))) => {
                        let (tail, bytes) = match &output {
                            CommandEvent::Stdout(bytes) => (&mut *stdout, bytes),
                            CommandEvent::Stderr(bytes) => (&mut *stderr, bytes),
                        };
                        tail.push(&String::from_utf8_lossy(bytes));
                        progress.output(tail);
                    }
                    Some(Ok(ProcessEvent::Exit(exit))) => return Ok(exit),
                    Some(Err(error)) => return Err(error),
                    // The reader ends with one of both.
                    None => std::future::pending().await,
                },
                () = progress.silence() => progress.report_time(),
            }
        }
    };
    tokio::pin!(reading);
    tokio::pin!(taking);
    tokio::select! {
        outcome = &mut taking => outcome,
        () = &mut reading => taking.await,
    }
}

/// Runs code to its end. If the future is dropped, the code is interrupted.
pub(crate) async fn code(
    sandbox: &Sandbox,
    request: &ExecutionRequest,
    limit: Duration,
    progress: &mut Progress,
) -> sandcove_client::Result<Ended> {
    let mut output = Tail::default();
    let mut results = Parts::default();
    let (mut error, mut has_ended) = (None, false);
    let running = async {
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
        let reading = async {
            let mut execution = sandbox.start_code(request).await?;
            // To the end of the body, so that the next request finds the connection open.
            while let Some(line) = execution.line(MAX_EVENT).await? {
                drop(send.send(line));
            }
            Ok(())
        };
        tokio::pin!(reading);
        let mut outcome = None;
        loop {
            tokio::select! {
                biased;
                Some(line) = receive.recv() => match ExecutionEvent::of(line.as_deref()) {
                    ExecutionEvent::Output(piece) => {
                        output.push(&piece);
                        progress.output(&output);
                    }
                    ExecutionEvent::Picture { kind, base64 } => results.picture(kind, &base64),
                    ExecutionEvent::Text(words) => {
                        let mut tail = Tail::default();
                        tail.push(&words);
                        if !tail.is_empty() {
                            results.text(tail.finish());
                        }
                    }
                    ExecutionEvent::TooLong => results.leave_out(),
                    ExecutionEvent::Failure(trace) => {
                        let mut tail = Tail::default();
                        tail.push(&trace);
                        error = Some(tail.finish());
                    }
                    ExecutionEvent::End => has_ended = true,
                    ExecutionEvent::Other => {}
                },
                ended = &mut reading, if outcome.is_none() => outcome = Some(ended),
                () = progress.silence(), if outcome.is_none() => progress.report_time(),
                else => break,
            }
            // All events were sent before the end was known.
            if outcome.is_some() && receive.is_empty() {
                break;
            }
        }
        outcome.unwrap_or(Ok(()))
    };
    let in_time = tokio::time::timeout(limit, running).await;
    let mut content = Vec::new();
    if !output.is_empty() {
        content.push(text(output.finish()));
    }
    content.append(&mut results.finish());
    let mut is_error = error.is_some();
    content.extend(error.map(text));
    match in_time {
        Ok(_) if has_ended => {}
        Ok(outcome) => {
            outcome?;
            is_error = true;
            content.push(text("the end of the execution was not reported"));
        }
        Err(_) => {
            is_error = true;
            content.push(text(format!("interrupted after {} s, the timeout of the code", limit.as_secs())));
        }
    }
    if content.is_empty() {
        content.push(text("the code ran without output"));
    }
    Ok(Ended { content, is_error })
}
