//! One piece of code in a sandbox, with limits that hold whatever it does.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use sandcove_client::{Command, CommandEvent, Sandbox, traceback};
use sandcove_wire::interpreter::{Event, ExecutionError, ExecutionRequest};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::memory;
use crate::sandboxes::chain;

/// Bytes of each stream that results keep.
const SHOWN: usize = 8 * 1024;

/// The limits of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) time: Duration,
    /// MiB on top of what the interpreter has at the start.
    pub(crate) memory: u64,
    /// Bytes on both streams together.
    pub(crate) output: usize,
    /// Whether it may use the internet.
    pub(crate) network: bool,
}

/// The reason why code was stopped before its end. The sandbox cannot be used afterwards, except after [`Stop::Timeout`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    Time(Duration),
    /// The command ended itself at its time limit.
    Timeout(Duration),
    Output(usize),
    /// The sandbox or the way to it broke; most often the code broke it.
    Lost(String),
}

/// The result of running code.
#[derive(Debug, Clone, Default)]
pub(crate) struct Execution {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) error: Option<ExecutionError>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) stopped: Option<Stop>,
    pub(crate) took: Duration,
    /// MiB that the interpreter had at most, on top of what it had before the answer's code.
    pub(crate) memory: Option<f64>,
    /// Whether it was refused the internet.
    offline: bool,
}

impl Execution {
    /// Returns why the code failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        if let Some(stop) = &self.stopped {
            return Some(match stop {
                Stop::Time(limit) | Stop::Timeout(limit) => {
                    format!("took longer than {} s and was stopped", limit.as_secs_f64())
                }
                Stop::Output(limit) => format!("printed more than {} KiB and was stopped", limit / 1024),
                Stop::Lost(why) => format!("broke its sandbox: {why}"),
            });
        }
        if let Some(error) = &self.error {
            if kernel_died(error) && self.ran_out_of_memory() {
                return Some("used too much memory, and its interpreter was killed".to_owned());
            }
            if kernel_died(error) {
                return Some(format!(
                    "ended its interpreter, or was ended for using too much ({})",
                    error.name
                ));
            }
            return Some(format!("{}: {}", error.name, error.value).trim_end_matches([':', ' ']).to_owned());
        }
        match self.exit_code {
            Some(memory::KILLED_STATUS) => Some(format!(
                "was killed (exit status {}), as programs are that use too much memory",
                memory::KILLED_STATUS
            )),
            Some(code) if code != 0 => Some(format!("ended with exit status {code}")),
            _ => None,
        }
    }

    /// Returns the limit that ended it, if one did.
    pub(crate) fn limit(&self) -> Option<&'static str> {
        match (&self.stopped, &self.error) {
            (Some(Stop::Time(_) | Stop::Timeout(_)), _) => Some("time"),
            (Some(Stop::Output(_)), _) => Some("output"),
            (None, _) if self.ran_out_of_memory() => Some("memory"),
            (None, _) if self.offline && self.failure().is_some() && self.missed_the_network() => {
                Some("network")
            }
            _ => None,
        }
    }

    /// Whether it failed for lack of memory, its interpreter's or the sandbox's.
    fn ran_out_of_memory(&self) -> bool {
        match (&self.error, self.exit_code) {
            (Some(error), _) => memory::is_named_in(error, [&self.stdout, &self.stderr], kernel_died(error)),
            (None, Some(memory::KILLED_STATUS)) => true,
            (None, Some(code)) => {
                code != 0 && [&self.stdout, &self.stderr].into_iter().any(|text| memory::is_printed(text))
            }
            (None, None) => false,
        }
    }

    /// Whether it ended with what resolvers and sockets say in a sandbox without the internet.
    fn missed_the_network(&self) -> bool {
        const SAID: [&str; 6] = [
            "Temporary failure in name resolution",
            "Could not resolve host",
            "Network is unreachable",
            "EAI_AGAIN",
            "ENETUNREACH",
            "unable to resolve host address",
        ];
        let error = self.error.as_ref().map(|error| [error.value.as_str(), error.traceback.as_str()]);
        let texts = error.unwrap_or([self.stderr.as_str(), self.stdout.as_str()]);
        SAID.iter().any(|said| texts.iter().any(|text| text.contains(said)))
    }

    /// Whether it ended with an error of its own, and neither at a limit nor with an exit status.
    pub(crate) fn raised(&self) -> bool {
        self.stopped.is_none() && self.error.as_ref().is_some_and(|error| !kernel_died(error))
    }

    /// Whether more code can be run in the same place.
    pub(crate) fn leaves_sandbox_usable(&self) -> bool {
        matches!(self.stopped, None | Some(Stop::Timeout(_))) && !self.error.as_ref().is_some_and(kernel_died)
    }

    /// Returns the execution as result files show it.
    pub(crate) fn to_json(&self) -> Value {
        let mut value = json!({
            "stdout": shown(&self.stdout), "stderr": shown(&self.stderr), "durationMs": self.took.as_secs_f64() * 1000.0,
        });
        if let Some(error) = &self.error {
            value["error"] = json!({"name": error.name, "value": error.value, "traceback": shown(&traceback::with_line_ends(error))});
        }
        if let Some(code) = self.exit_code {
            value["exitCode"] = json!(code);
        }
        if let Some(memory) = self.memory {
            value["memoryMb"] = json!(memory);
        }
        if let Some(limit) = self.limit() {
            value["limit"] = json!(limit);
        }
        if self.stopped.is_some() {
            value["stopped"] = json!(self.failure());
        }
        value
    }
}

/// Runs code in the interpreter; what earlier executions defined in the language is there.
pub(crate) async fn code(sandbox: &Sandbox, language: &str, code: &str, limits: Limits) -> Execution {
    code_with(sandbox, language, code, limits, &BTreeMap::new()).await
}

/// Runs code in the interpreter, with variables of the environment.
pub(crate) async fn code_with(
    sandbox: &Sandbox,
    language: &str,
    code: &str,
    limits: Limits,
    envs: &BTreeMap<String, String>,
) -> Execution {
    let request = ExecutionRequest {
        code: code.to_owned(),
        context_id: None,
        language: Some(language.to_owned()),
        env_vars: (!envs.is_empty()).then(|| envs.clone()),
    };
    let mut printed = LimitedOutput::new(limits);
    let flood = printed.flood();
    let mut error = None;
    let started = Instant::now();
    let run = sandbox.run_code(&request, |event| match event {
        Event::Stdout(output) => printed.stdout(output.text.as_bytes()),
        Event::Stderr(output) => printed.stderr(output.text.as_bytes()),
        Event::Error(raised) => error = Some(raised),
        _ => {}
    });
    let stopped = within(run, &flood, limits).await.err();
    printed.execution(error, None, stopped, started)
}

/// Returns code that prints the maximum memory of its interpreter, in KiB: for Python since the code last ran, for JavaScript since the interpreter
/// started. Callers ignore its failure.
pub(super) fn memory_gauge(language: &str) -> Option<&'static str> {
    match language {
        // An answer may define its own `open`. The code may run in the cell of a case, whose outcome it must not change.
        "python" => Some(
            "try:\n    \
             print(__import__('io').open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n    \
             __import__('io').open('/proc/self/clear_refs', 'w').write('5')\n\
             except BaseException:\n    pass",
        ),
        "javascript" | "typescript" => Some("console.log(process.resourceUsage().maxRSS)"),
        _ => None,
    }
}

/// Returns the number on the last line of the output, which a memory gauge printed, in KiB.
pub(super) fn gauged(execution: &Execution) -> Option<f64> {
    execution.stdout.trim_end().rsplit('\n').next()?.trim().parse().ok()
}

/// Returns code with the memory gauge appended and `mark` printed on the line before the gauge's. Python only: a JavaScript cell awaits its last
/// value, so nothing may follow it.
pub(super) fn with_memory_gauge(language: &str, code: &str, mark: &str) -> Option<String> {
    // A cell magic: the rest of the cell is not Python.
    if language != "python" || code.trim_start().starts_with("%%") {
        return None;
    }
    let gauge = memory_gauge(language)?;
    Some(format!("{code}\ntry: print('\\n{mark}')\nexcept BaseException: pass\n{gauge}"))
}

impl Execution {
    /// Removes the mark and everything after it from the output, and returns what the memory gauge printed; none if the gauge did not run.
    pub(super) fn take_gauged(&mut self, mark: &str) -> Option<f64> {
        let printed = format!("\n{mark}\n");
        let at = self.stdout.rfind(&printed)?;
        let kib = self.stdout[at + printed.len()..].lines().next().and_then(|line| line.trim().parse().ok());
        self.stdout.truncate(at);
        kib
    }
}

/// Runs a command line.
pub(crate) async fn command(sandbox: &Sandbox, line: &str, limits: Limits) -> Execution {
    run(sandbox, &Command { line: line.to_owned(), ..Command::default() }, limits).await
}

/// Runs a command.
pub(crate) async fn run(sandbox: &Sandbox, command: &Command, limits: Limits) -> Execution {
    let mut printed = LimitedOutput::new(limits);
    let flood = printed.flood();
    let started = Instant::now();
    let run = sandbox.run(command, |event| match event {
        CommandEvent::Stdout(bytes) => printed.stdout(&bytes),
        CommandEvent::Stderr(bytes) => printed.stderr(&bytes),
    });
    let (exit_code, stopped) = match within(run, &flood, limits).await {
        Ok(exit) => (Some(if exit.code < 0 { exit.shell_status().into() } else { exit.code }), None),
        Err(stop) => (None, Some(stop)),
    };
    printed.execution(None, exit_code, stopped, started)
}

/// Whether the interpreter lost what it had defined.
fn kernel_died(error: &ExecutionError) -> bool {
    matches!(error.name.as_str(), "ContextRestarting" | "UnexpectedEndOfExecution" | "ExecutionAborted")
}

/// Waits for the end, too much output or the time limit. Being dropped, a call to a sandbox hangs up.
async fn within<T>(
    run: impl Future<Output = sandcove_client::Result<T>>,
    flood: &Notify,
    limits: Limits,
) -> Result<T, Stop> {
    tokio::select! {
        ended = tokio::time::timeout(limits.time, run) => match ended {
            // The end may arrive together with what is too much.
            Ok(Ok(_)) if flood.notified().now_or_never().is_some() => Err(Stop::Output(limits.output)),
            Ok(Ok(value)) => Ok(value),
            // What is printed may arrive as one line, whatever its length.
            Ok(Err(sandcove_client::Error::LongLine { .. })) => Err(Stop::Output(limits.output)),
            Ok(Err(error)) => Err(Stop::Lost(chain(&error))),
            Err(_) => Err(Stop::Time(limits.time)),
        },
        () = flood.notified() => Err(Stop::Output(limits.output)),
    }
}

/// The end of what was printed, where tests say how they went.
pub(crate) fn tail(execution: &Execution) -> String {
    const SHOWN: usize = 6000;
    let text = format!("{}{}", execution.stdout, execution.stderr);
    let mut start = text.len().saturating_sub(SHOWN);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].to_owned()
}

/// Output as it comes, up to a limit.
struct LimitedOutput {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    limits: Limits,
    flood: std::sync::Arc<Notify>,
}

impl LimitedOutput {
    fn new(limits: Limits) -> Self {
        Self { stdout: Vec::new(), stderr: Vec::new(), limits, flood: std::sync::Arc::default() }
    }

    /// Notified when there is more than the limit.
    fn flood(&self) -> std::sync::Arc<Notify> {
        std::sync::Arc::clone(&self.flood)
    }

    fn stdout(&mut self, bytes: &[u8]) {
        let room = self.room(bytes.len());
        self.stdout.extend_from_slice(&bytes[..room]);
    }

    fn stderr(&mut self, bytes: &[u8]) {
        let room = self.room(bytes.len());
        self.stderr.extend_from_slice(&bytes[..room]);
    }

    fn room(&self, wanted: usize) -> usize {
        let room = self.limits.output.saturating_sub(self.stdout.len() + self.stderr.len());
        if wanted > room {
            self.flood.notify_one();
        }
        wanted.min(room)
    }

    fn execution(
        self,
        error: Option<ExecutionError>,
        exit_code: Option<i32>,
        stopped: Option<Stop>,
        started: Instant,
    ) -> Execution {
        Execution {
            stdout: String::from_utf8_lossy(&self.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&self.stderr).into_owned(),
            error,
            exit_code,
            stopped,
            took: started.elapsed(),
            memory: None,
            offline: !self.limits.network,
        }
    }
}

/// The beginning of a long text, and that there was more.
pub(crate) fn shown(text: &str) -> String {
    if text.len() <= SHOWN {
        return text.to_owned();
    }
    let mut end = SHOWN;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}… ({} bytes in all)", &text[..end], text.len())
}
