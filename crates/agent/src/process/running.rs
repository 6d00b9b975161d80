//! A process from start to end: its streams, its input, and the task that manages it.
//!
//! ```text
//!            exit                     streams at their end
//! running ----------> exited ---------------------------------> ended
//!    |                   |                                        ^
//!    | kill requested    | kill requested, or was before          |
//!    '-> killed --exit---'--------> what is readable now ---------'
//! ```
//!
//! A process that has exited but whose output is still held open by a descendant stays live for clients; a kill then
//! closes the streams (contract: envd, section 2.3, when end comes). Where all processes end together, as in the steps of a build,
//! descendants are killed when the process exits.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal};
use rustix::termios::Winsize;
use sandcove_wire::envd::process::ProcessConfig;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::endpoint::{Endpoint, PIPE_CHUNK, TERMINAL_CHUNK};
use super::output::{Channel, Output, Subscription};
use super::table::Table;
use crate::spawn::{Child, Children, Exit, Launch, SpawnError, Stdio};

/// Limit on what is still read from a stream that is cut, in bytes: what a pipe can hold.
const MAX_LATE_OUTPUT: usize = 1 << 20;

/// How the standard streams of a new process are set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// Pipes for output and error.
    Pipes {
        /// Standard input.
        input: Input,
    },
    /// A terminal of this size.
    Terminal(Winsize),
}

/// Standard input of a process without a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Input is a pipe that clients write to.
    Open,
    /// Input is `/dev/null`.
    Closed,
}

/// An error of writing input.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The process was started without input, or it has been closed.
    #[error("the input of the process is not open")]
    NotOpen,
    /// The input is for a terminal, and there is none.
    #[error("the process has no terminal")]
    NoTerminal,
    /// The input is for a pipe, and there is a terminal instead.
    #[error("the process has a terminal, which takes its input")]
    IsTerminal,
    /// The process does not read its input.
    #[error("failed to write to the process: {0}")]
    Write(#[source] io::Error),
}

/// A process that has been started for a client.
#[derive(Debug)]
pub struct Process {
    /// Process id.
    pub pid: Pid,
    /// Program, arguments, variables and directory of the request.
    pub config: ProcessConfig,
    /// Free text that selects the process.
    pub tag: Option<String>,
    output: Arc<Output>,
    input_sink: InputSink,
    phase: Mutex<Phase>,
    /// Cancelled when streams are not waited for any more.
    cut: CancellationToken,
}

/// The end of the input that the daemon writes to.
#[derive(Debug)]
enum InputSink {
    /// Controlling side of the terminal; absent once the process has ended.
    Terminal(Mutex<Option<Arc<Endpoint>>>),
    Pipe {
        /// Locked during a write, so that writes do not mix.
        end: tokio::sync::Mutex<Option<Endpoint>>,
        closed: CancellationToken,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    KillRequested,
    Exited,
}

/// The parameters of a start.
#[derive(Debug)]
pub struct Plan {
    /// Program to start.
    pub launch: Launch,
    /// Standard streams.
    pub streams: Streams,
    /// User id of the owner of the terminal.
    pub uid: u32,
    /// Program, arguments, variables and directory of the request.
    pub config: ProcessConfig,
    /// Free text that selects the process.
    pub tag: Option<String>,
    /// Time at which the process is killed, if it still runs.
    pub deadline: Option<Instant>,
    /// Whether all other processes are killed when this one exits.
    pub ends_together: bool,
    /// Told how the process exits, even if descendants hold its output open.
    pub on_exit: Option<oneshot::Sender<Exit>>,
}

impl Process {
    /// Starts a process, adds it to `table` and manages it to its end. The subscription sees all its output.
    pub async fn start(
        plan: Plan,
        children: &Arc<Children>,
        table: &Arc<Table<Self>>,
    ) -> Result<(Arc<Self>, Subscription), SpawnError> {
        let Plan { launch, streams, uid, config, tag, deadline, ends_together, on_exit } = plan;
        let (stdio, input_sink, sources) = connect(streams, uid).map_err(SpawnError::Streams)?;
        let Child { pid, exit } = children.spawn(&launch, stdio).await?;
        let process = Arc::new(Self {
            pid,
            config,
            tag: tag.clone(),
            output: Arc::default(),
            input_sink,
            phase: Mutex::new(Phase::Running),
            cut: CancellationToken::new(),
        });
        let subscription = process.output.subscribe();
        table.insert(process.id(), tag, Arc::clone(&process));

        let mut pumps = JoinSet::new();
        for (channel, source) in sources {
            pumps.spawn(pump(channel, source, Arc::clone(&process.output), process.cut.clone()));
        }
        let (children, table, watched) = (Arc::clone(children), Arc::clone(table), Arc::clone(&process));
        tokio::spawn(async move {
            let others = ends_together.then(|| Arc::clone(&children));
            let over = async {
                // The sender is dropped only if the runtime is; there is nothing to report to then.
                let exit = exit.await.ok()?;
                if let Some(on_exit) = on_exit {
                    // Nothing listens once the sandbox ends.
                    let _ = on_exit.send(exit);
                }
                if let Some(others) = others {
                    others.kill_everything().await;
                    watched.cut.cancel();
                }
                watched.exited();
                while pumps.join_next().await.is_some() {}
                Some(exit)
            };
            tokio::pin!(over);
            let exit = tokio::select! {
                exit = &mut over => exit,
                () = until(deadline) => {
                    // An error means that the process has just ended.
                    let _ = watched.kill(&children, Signal::KILL);
                    over.await
                }
            };
            watched.close_input().await;
            // In this order, so that a client that sees the end does not find the process in the list any more.
            table.retire(watched.id(), &watched);
            if let Some(exit) = exit {
                watched.output.end(exit);
            }
        });
        Ok((process, subscription))
    }

    /// The process id as it is in messages.
    pub fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Subscribes to the output.
    pub fn subscribe(&self) -> Subscription {
        self.output.subscribe()
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exited(&self) {
        let mut phase = self.phase();
        if *phase == Phase::KillRequested {
            self.cut.cancel();
        }
        *phase = Phase::Exited;
    }

    /// Sends a signal that should end the process; descendants do not delay the end event then.
    pub fn kill(&self, children: &Children, signal: Signal) -> io::Result<()> {
        let mut phase = self.phase();
        if *phase == Phase::Exited {
            self.cut.cancel();
            return Ok(());
        }
        // Not sent means that the process has just been reaped: `exited` is about to be called, and cuts.
        children.signal(self.pid, signal)?;
        *phase = Phase::KillRequested;
        Ok(())
    }

    /// Writes to standard input, and waits while the pipe is full.
    pub async fn write_stdin(&self, bytes: &[u8]) -> Result<(), InputError> {
        let InputSink::Pipe { end, closed } = &self.input_sink else { return Err(InputError::IsTerminal) };
        let end = end.lock().await;
        let Some(pipe) = &*end else { return Err(InputError::NotOpen) };
        tokio::select! {
            written = pipe.write_all(bytes) => written.map_err(InputError::Write),
            () = closed.cancelled() => Err(InputError::NotOpen),
        }
    }

    /// Writes to the terminal.
    pub async fn write_terminal(&self, bytes: &[u8]) -> Result<(), InputError> {
        let terminal = self.terminal()?;
        tokio::select! {
            written = terminal.write_all(bytes) => written.map_err(InputError::Write),
            () = self.cut.cancelled() => Err(InputError::NotOpen),
        }
    }

    /// Closes standard input. An error if the process has a terminal, whose input has no end.
    pub async fn close_stdin(&self) -> Result<(), InputError> {
        if matches!(self.input_sink, InputSink::Terminal(_)) {
            return Err(InputError::IsTerminal);
        }
        self.close_input().await;
        Ok(())
    }

    async fn close_input(&self) {
        match &self.input_sink {
            InputSink::Terminal(terminal) => {
                drop(terminal.lock().unwrap_or_else(PoisonError::into_inner).take());
            }
            InputSink::Pipe { end, closed } => {
                // Ends a write that waits for the process to read.
                closed.cancel();
                drop(end.lock().await.take());
            }
        }
    }

    /// Changes the size of the terminal.
    pub fn resize(&self, size: Winsize) -> Result<(), InputError> {
        self.terminal()?.resize(size).map_err(InputError::Write)
    }

    fn terminal(&self) -> Result<Arc<Endpoint>, InputError> {
        let InputSink::Terminal(terminal) = &self.input_sink else { return Err(InputError::NoTerminal) };
        let terminal = terminal.lock().unwrap_or_else(PoisonError::into_inner);
        terminal.clone().ok_or(InputError::NotOpen)
    }
}

type Sources = Vec<(Channel, Arc<Endpoint>)>;

fn connect(streams: Streams, uid: u32) -> io::Result<(Stdio, InputSink, Sources)> {
    match streams {
        Streams::Terminal(size) => {
            let (terminal, theirs) = Endpoint::terminal(size, uid)?;
            let terminal = Arc::new(terminal);
            let sources = vec![(Channel::Terminal, Arc::clone(&terminal))];
            Ok((Stdio::Terminal(theirs), InputSink::Terminal(Mutex::new(Some(terminal))), sources))
        }
        Streams::Pipes { input } => {
            let (stdout, their_stdout) = Endpoint::output()?;
            let (stderr, their_stderr) = Endpoint::output()?;
            let (end, their_stdin) = match input {
                Input::Open => {
                    let (end, theirs) = Endpoint::input()?;
                    (Some(end), theirs)
                }
                Input::Closed => (None, std::fs::File::open("/dev/null")?.into()),
            };
            let input_sink =
                InputSink::Pipe { end: tokio::sync::Mutex::new(end), closed: CancellationToken::new() };
            let sources = vec![(Channel::Stdout, Arc::new(stdout)), (Channel::Stderr, Arc::new(stderr))];
            Ok((Stdio::Streams([their_stdin, their_stdout, their_stderr]), input_sink, sources))
        }
    }
}

/// Copies one stream to the log until its end, or until it is cut and nothing more is readable.
async fn pump(channel: Channel, source: Arc<Endpoint>, output: Arc<Output>, cut: CancellationToken) {
    let limit = if channel == Channel::Terminal { TERMINAL_CHUNK } else { PIPE_CHUNK };
    let flow = async {
        loop {
            output.room().await;
            match source.read(limit).await {
                Ok(bytes) if !bytes.is_empty() => output.push(channel, bytes),
                // A read error of a pipe is an end too: nothing more will come.
                _ => return,
            }
        }
    };
    tokio::select! {
        // First, as a stream at its end needs no cut.
        biased;
        () = flow => return,
        () = cut.cancelled() => {}
    }
    let mut late = 0;
    while late < MAX_LATE_OUTPUT {
        let bytes = source.read_available(limit);
        if bytes.is_empty() {
            return;
        }
        late += bytes.len();
        output.push(channel, bytes);
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
