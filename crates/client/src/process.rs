//! A running process in a sandbox: its output, and handles for its input, signals and terminal (contract: envd, section 2).

use bytes::Bytes;
use futures_util::Stream;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method};
use sandcove_wire::boot::AGENT_PORT;
use sandcove_wire::envd::process::process_event::Event;
use sandcove_wire::envd::process::process_event::data_event::Output;
use sandcove_wire::envd::process::{
    CloseStdinRequest, ConnectRequest, ListResponse, ProcessConfig, ProcessInfo, ProcessInput,
    ProcessSelector, Pty, SendInputRequest, SendSignalRequest, Signal, StartRequest, StartResponse,
    UpdateRequest, process_input, process_selector, pty,
};
use serde::Serialize;

use crate::body::{Pieces, message};
use crate::command::{Command, CommandEvent, CommandExit, Input, Program, TerminalSize};
use crate::connect;
use crate::error::{Error, Result};
use crate::sandbox::Sandbox;

/// A running process and the stream of its output. Dropping it does not end the process.
pub struct Process {
    controls: Controls,
    pieces: Pieces,
}

/// An event of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessEvent {
    /// Output of the process.
    Output(CommandEvent),
    /// The end of the process, which is the last event.
    Exit(CommandExit),
}

/// A handle for the input, the terminal and the signals of a process. Clones control the same process.
#[derive(Debug, Clone)]
pub struct Controls {
    sandbox: Sandbox,
    pid: u32,
    input: Input,
}

impl Sandbox {
    /// The running processes that clients have started, in any order.
    ///
    /// # Errors
    /// If the agent does not answer.
    pub async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        const PATH: &str = "/process.Process/List";
        let headers = vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let body = Bytes::from_static(b"{}");
        let response = self.send(AGENT_PORT, Method::POST, PATH, headers, body).await?;
        Ok(message::<ListResponse>(response.into_body(), self.url(AGENT_PORT, PATH)).await?.processes)
    }

    /// Starts a command and returns once it has a process id.
    ///
    /// # Errors
    /// If the command cannot be started.
    pub async fn start(&self, command: &Command) -> Result<Process> {
        self.start_program(&command.into()).await
    }

    /// Starts a program and returns once it has a process id. A program that does not exist ends with status 127.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub async fn start_program(&self, program: &Program) -> Result<Process> {
        let request = StartRequest {
            process: Some(ProcessConfig {
                cmd: program.program.clone(),
                args: program.arguments.clone(),
                envs: program.envs.clone(),
                cwd: program.cwd.clone(),
            }),
            pty: match program.input {
                Input::Terminal(size) => Some(size.into()),
                Input::Closed | Input::Pipe => None,
            },
            stdin: Some(program.input == Input::Pipe),
            ..StartRequest::default()
        };
        self.open_process("Start", &request, program.user.as_deref(), program.input).await
    }

    /// Connects to a running process, which another client may have started, and returns once it has been found. Its output is
    /// that from now on. `input` is the kind of input that it was started with.
    ///
    /// # Errors
    /// If no such process runs.
    pub async fn connect_process(&self, pid: u32, input: Input) -> Result<Process> {
        let request = ConnectRequest { process: selector(pid) };
        self.open_process("Connect", &request, None, input).await
    }

    async fn open_process(
        &self,
        method: &str,
        request: &impl Serialize,
        user: Option<&str>,
        input: Input,
    ) -> Result<Process> {
        let path = format!("/process.Process/{method}");
        let malformed = |reason: String| Error::Malformed { url: self.url(AGENT_PORT, &path), reason };
        let body = connect::envelope(request).map_err(|error| malformed(error.to_string()))?;
        let mut headers = vec![
            (CONTENT_TYPE, HeaderValue::from_static("application/connect+json")),
            (HeaderName::from_static("connect-protocol-version"), HeaderValue::from_static("1")),
        ];
        if let Some(user) = user {
            headers.push(connect::basic(user, &self.url(AGENT_PORT, &path))?);
        }
        let response = self.send(AGENT_PORT, Method::POST, &path, headers, body).await?;
        let mut pieces = Pieces::new(response.into_body(), self.url(AGENT_PORT, &path));
        while let Some(message) = connect::next::<StartResponse>(&mut pieces).await? {
            if let Some(Event::Start(start)) = message.event.and_then(|event| event.event) {
                let controls = Controls { sandbox: self.clone(), pid: start.pid, input };
                return Ok(Process { controls, pieces });
            }
        }
        Err(pieces.malformed("the start of the program was not reported"))
    }

    /// Runs a command to its end and passes its output to the callback as it comes.
    ///
    /// # Errors
    /// If the command cannot be started or the connection breaks. A status other than 0 is no error.
    pub async fn run(&self, command: &Command, on_event: impl FnMut(CommandEvent)) -> Result<CommandExit> {
        self.run_program(&command.into(), on_event).await
    }

    /// Runs a program to its end and passes its output to the callback as it comes.
    ///
    /// # Errors
    /// If the program cannot be started or the connection breaks. A status other than 0 is no error.
    pub async fn run_program(
        &self,
        program: &Program,
        mut on_event: impl FnMut(CommandEvent),
    ) -> Result<CommandExit> {
        let mut process = self.start_program(program).await?;
        loop {
            match process.next().await? {
                ProcessEvent::Output(event) => on_event(event),
                ProcessEvent::Exit(exit) => return Ok(exit),
            }
        }
    }
}

impl Process {
    /// The events that [`next`](Self::next) returns, as a stream that ends after the exit.
    pub fn into_stream(self) -> impl Stream<Item = Result<ProcessEvent>> + Send {
        futures_util::stream::try_unfold(Some(self), |running| async move {
            let Some(mut process) = running else { return Ok(None) };
            let event = process.next().await?;
            let rest = matches!(event, ProcessEvent::Output(_)).then_some(process);
            Ok(Some((event, rest)))
        })
    }

    /// A handle for input, signals and terminal that can be used while output is awaited.
    pub fn controls(&self) -> Controls {
        self.controls.clone()
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// If the connection breaks before the process has ended.
    pub async fn next(&mut self) -> Result<ProcessEvent> {
        while let Some(message) = connect::next::<StartResponse>(&mut self.pieces).await? {
            let output = match message.event.and_then(|event| event.event) {
                Some(Event::Data(data)) => data.output,
                Some(Event::End(end)) => {
                    return Ok(ProcessEvent::Exit(CommandExit { code: end.exit_code, status: end.status }));
                }
                Some(Event::Start(_) | Event::Keepalive(_)) | None => None,
            };
            match output {
                Some(Output::Stdout(bytes) | Output::Pty(bytes)) => {
                    return Ok(ProcessEvent::Output(CommandEvent::Stdout(bytes)));
                }
                Some(Output::Stderr(bytes)) => return Ok(ProcessEvent::Output(CommandEvent::Stderr(bytes))),
                None => {}
            }
        }
        Err(self.pieces.malformed("the command's end was not reported"))
    }
}

impl Controls {
    /// The process id inside the sandbox.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Writes to standard input, and returns when all of it is written.
    ///
    /// # Errors
    /// If the process does not read any more, or has no input.
    pub async fn write(&self, bytes: Bytes) -> Result<()> {
        let input = match self.input {
            Input::Terminal(_) => process_input::Input::Pty(bytes),
            Input::Closed | Input::Pipe => process_input::Input::Stdin(bytes),
        };
        let input = Some(ProcessInput { input: Some(input) });
        self.call("SendInput", &SendInputRequest { process: selector(self.pid), input }).await
    }

    /// Closes standard input: the process reads end of file once it has read the rest. A terminal gets Ctrl-D.
    ///
    /// # Errors
    /// If the process is gone.
    pub async fn close_input(&self) -> Result<()> {
        match self.input {
            Input::Terminal(_) => self.write(Bytes::from_static(b"\x04")).await,
            Input::Closed | Input::Pipe => {
                self.call("CloseStdin", &CloseStdinRequest { process: selector(self.pid) }).await
            }
        }
    }

    /// Changes the size of the process's terminal.
    ///
    /// # Errors
    /// If the process is gone or has no terminal.
    pub async fn resize(&self, size: TerminalSize) -> Result<()> {
        self.call("Update", &UpdateRequest { process: selector(self.pid), pty: Some(size.into()) }).await
    }

    /// Sends a signal (`INT`, `TERM`, …) to the process and everything it started.
    ///
    /// # Errors
    /// If the sandbox does not answer.
    pub async fn signal(&self, name: &str) -> Result<()> {
        // Processes share the process group of the agent, and its own RPC for signals has only two of them, for one process.
        let line = format!(
            "pids={pid}; seen=; while [ -n \"$pids\" ]; do seen=\"$seen $pids\"; next=; for p in $pids; do \
             next=\"$next $(cat /proc/$p/task/*/children 2>/dev/null)\"; done; pids=$(echo $next); done; kill -s {name} $seen 2>/dev/null; true",
            pid = self.pid
        );
        let command = Command { line, user: Some("root".to_owned()), ..Command::default() };
        self.sandbox.run(&command, |_| {}).await.map(drop)
    }

    /// Kills the process, but nothing that it started.
    ///
    /// # Errors
    /// If the process is gone.
    pub async fn kill(&self) -> Result<()> {
        let request = SendSignalRequest { process: selector(self.pid), signal: Signal::Sigkill.into() };
        self.call("SendSignal", &request).await
    }

    async fn call(&self, method: &str, request: &impl Serialize) -> Result<()> {
        let path = format!("/process.Process/{method}");
        let body = serde_json::to_vec(request).map_err(|error| Error::Malformed {
            url: self.sandbox.url(AGENT_PORT, &path),
            reason: error.to_string(),
        })?;
        let headers = vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        self.sandbox.send(AGENT_PORT, Method::POST, &path, headers, body.into()).await.map(drop)
    }
}

fn selector(pid: u32) -> Option<ProcessSelector> {
    Some(ProcessSelector { selector: Some(process_selector::Selector::Pid(pid)) })
}

impl From<TerminalSize> for Pty {
    fn from(size: TerminalSize) -> Self {
        let size = pty::Size { cols: size.columns.into(), rows: size.rows.into() };
        Self { size: Some(size) }
    }
}
