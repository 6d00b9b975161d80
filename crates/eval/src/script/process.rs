//! One interpreter process and its pipes.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{Language, ScriptError, ScriptReply};
use crate::model::Object;
use crate::reading::files;

/// The time limit for an interpreter to be ready for calls.
const START_LIMIT: Duration = Duration::from_secs(30);
/// The most bytes that are kept of what one call prints to one stream.
const MAX_PRINTED: usize = 64 * 1024;
/// Sucrase, which turns TypeScript into JavaScript. `crates/eval/typescript` builds it.
const TRANSFORM: &str = include_str!("../../typescript/dist/transform.js");

/// A running interpreter that waits for calls.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    calls: pipe::Sender,
    replies: BufReader<pipe::Receiver>,
    stdout: StreamText,
    stderr: StreamText,
    program: String,
    /// Whether the process has what runs TypeScript.
    typescript: bool,
}

/// A line from the interpreter.
#[derive(Deserialize)]
struct ReplyLine {
    #[serde(default)]
    value: Value,
    error: Option<ReportedError>,
}

#[derive(Deserialize)]
struct ReportedError {
    kind: String,
    message: String,
    #[serde(default)]
    traceback: String,
}

impl Process {
    /// Starts `program` in `directory` and waits until it is ready.
    pub(super) async fn start(
        language: Language,
        program: &str,
        directory: &Path,
        env: &Object,
    ) -> Result<Self, ScriptError> {
        let failed = |error: &dyn std::fmt::Display| {
            ScriptError::Worker(format!("failed to start `{program}`: {error}"))
        };
        let mut process = Self::spawn(language, program, directory, env).map_err(|error| failed(&error))?;
        let mut line = String::new();
        match timeout(START_LIMIT, process.replies.read_line(&mut line)).await {
            Ok(Ok(read)) if read > 0 => Ok(process),
            Ok(_) => {
                let end = process.end().await;
                Err(failed(&end))
            }
            Err(_) => Err(failed(&format!("it was not ready within {} s", START_LIMIT.as_secs()))),
        }
    }

    fn spawn(language: Language, program: &str, directory: &Path, env: &Object) -> io::Result<Self> {
        let (calls_in, calls) = io::pipe()?;
        let (replies, replies_out) = io::pipe()?;
        let (stdout, stdout_in) = io::pipe()?;
        let (stderr, stderr_in) = io::pipe()?;
        let mut command = Command::new(program);
        match language {
            Language::Python => command.arg("-c").arg(include_str!("host.py")),
            Language::Ruby => command.arg("-e").arg(include_str!("host.rb")),
            Language::JavaScript => command.arg("--no-warnings").arg("-e").arg(include_str!("host.js")),
        };
        command
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(stdout_in)
            .stderr(stderr_in)
            // Ctrl-C is for the evaluator, which lets calls end.
            .process_group(0)
            .kill_on_drop(true);
        for (name, value) in env {
            match value {
                Value::String(text) => command.env(name, text),
                other => command.env(name, other.to_string()),
            };
        }
        command
            .fd_mappings(vec![
                FdMapping { parent_fd: OwnedFd::from(calls_in), child_fd: 3 },
                FdMapping { parent_fd: OwnedFd::from(replies_out), child_fd: 4 },
            ])
            .map_err(io::Error::other)?;
        let child = command.spawn()?;
        Ok(Self {
            child,
            calls: pipe::Sender::from_owned_fd(calls.into())?,
            replies: BufReader::new(pipe::Receiver::from_owned_fd(replies.into())?),
            stdout: StreamText::new(stdout.into())?,
            stderr: StreamText::new(stderr.into())?,
            program: program.to_owned(),
            typescript: false,
        })
    }

    /// Sends one call and waits for its reply. After an error other than [`ScriptError::Raised`] and
    /// [`ScriptError::NotFound`] the process is of no more use.
    pub(super) async fn call(
        &mut self,
        request: &Value,
        time_limit: Duration,
    ) -> Result<ScriptReply, ScriptError> {
        let path = request.get("path").and_then(Value::as_str).unwrap_or_default();
        if !self.typescript && files::is_typescript(&files::extension(path)) {
            self.typescript = true;
            let hooks = include_str!("typescript.mjs");
            let sent = json!({"op": "typescript", "transform": TRANSFORM, "hooks": hooks});
            self.answer(&sent, START_LIMIT).await?;
        }
        self.answer(request, time_limit).await
    }

    async fn answer(&mut self, request: &Value, time_limit: Duration) -> Result<ScriptReply, ScriptError> {
        let mut line = request.to_string();
        line.push('\n');
        let answer = match timeout(time_limit, self.exchange(line.as_bytes())).await {
            Err(_) => return Err(ScriptError::TimedOut(time_limit)),
            Ok(Ok(Some(answer))) => answer,
            // It is gone: reads end, writes break.
            Ok(_) => {
                let end = self.end().await;
                return Err(ScriptError::Worker(format!("`{}` ended during the call: {end}", self.program)));
            }
        };
        let stdout = self.stdout.take();
        let stderr = self.stderr.take();
        let reply: ReplyLine = serde_json::from_str(&answer).map_err(|error| {
            ScriptError::Worker(format!("unreadable reply from `{}`: {error}", self.program))
        })?;
        match reply.error {
            None => Ok(ScriptReply { value: reply.value, stdout, stderr }),
            Some(failure) if failure.kind == "not_found" => Err(ScriptError::NotFound(failure.message)),
            Some(failure) => {
                Err(ScriptError::Raised { message: failure.message, traceback: failure.traceback })
            }
        }
    }

    /// Writes a line and reads one, while what is printed is read away so that printing never stops the code.
    async fn exchange(&mut self, line: &[u8]) -> io::Result<Option<String>> {
        let Self { calls, replies, stdout, stderr, .. } = self;
        let talk = async {
            calls.write_all(line).await?;
            let mut answer = String::new();
            let read = replies.read_line(&mut answer).await?;
            Ok((read > 0).then_some(answer))
        };
        tokio::pin!(talk);
        loop {
            tokio::select! {
                answer = &mut talk => return answer,
                () = stdout.fill() => {}
                () = stderr.fill() => {}
            }
        }
    }

    /// Ends the process if it still runs, and returns how it ended with the last line that it printed to standard error.
    async fn end(&mut self) -> String {
        let status = match timeout(Duration::from_secs(1), self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            _ => "its pipes are closed".to_owned(),
        };
        let printed = self.stderr.take();
        match printed.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => format!("{status}: {}", line.trim()),
            None => status,
        }
    }
}

/// The text that is printed to one stream.
#[derive(Debug)]
struct StreamText {
    pipe: pipe::Receiver,
    text: Vec<u8>,
    open: bool,
}

impl StreamText {
    fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { pipe: pipe::Receiver::from_owned_fd(fd)?, text: Vec::new(), open: true })
    }

    /// Waits for something to be printed and keeps it; for ever when nothing can come any more.
    async fn fill(&mut self) {
        if !self.open || self.pipe.readable().await.is_err() {
            return std::future::pending().await;
        }
        self.drain();
    }

    /// Takes what is there, without waiting.
    fn drain(&mut self) {
        let mut piece = [0; 16 * 1024];
        loop {
            match self.pipe.try_read(&mut piece) {
                Ok(0) => {
                    self.open = false;
                    return;
                }
                Ok(read) => {
                    let room = MAX_PRINTED.saturating_sub(self.text.len());
                    self.text.extend_from_slice(&piece[..read.min(room)]);
                }
                Err(_) => return,
            }
        }
    }

    /// Everything since the last time.
    fn take(&mut self) -> String {
        self.drain();
        String::from_utf8_lossy(&std::mem::take(&mut self.text)).into_owned()
    }
}
