//! A running kernel process: its frames, its output, and its death.
//!
//! Nothing here knows how a kernel of some language is started. A kernel that does not speak frames comes with a [`Session`],
//! whose task translates.

mod ending;
mod error;
pub mod frame;
mod link;
mod pipe;
mod process;
pub mod request;
mod sys;
mod transport;

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use rustix::process::Signal;
use serde::Deserialize;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tokio_util::codec::FramedRead;

use ending::REAP_TIMEOUT;
pub use ending::{Ending, Reports};
use error::START_TIMEOUT;
pub use error::StartError;
use frame::{Frame, FrameDecoder, Stream};
pub use link::{Ends, Link, OutputEnds, Outputs};
use pipe::OutputPipe;
use process::Process;
pub use process::{Spawned, spawn};
use request::{Change, Request};
use transport::Transport;
pub use transport::{Session, SessionEnds};

/// How long frames are still read after a kernel's death: a child of it may hold its socket open for ever.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Limit on what the error of a failed start shows of the kernel's output, in bytes.
const MAX_START_OUTPUT: usize = 4 << 10;

/// A kernel process. Dropping it kills the process and its group.
#[derive(Debug)]
pub struct Kernel {
    transport: Transport,
    stdout: OutputPipe,
    stderr: OutputPipe,
    process: Process,
    ending: Ending,
    /// When the process was found dead, if its socket has outlived it.
    died: Option<Instant>,
    traits: Traits,
}

/// The traits in which running kernels differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    /// Way to interrupt the kernel.
    pub interrupt: InterruptMode,
    /// Consequence when interrupting does not help.
    pub escalation: Escalation,
    /// Treatment of the output in the kernel's pipes.
    pub pipes: PipeOutput,
}

impl Traits {
    /// The traits of a host of our own.
    pub fn host(escalation: Escalation) -> Self {
        Self { interrupt: InterruptMode::Signal, escalation, pipes: PipeOutput::Forward }
    }
}

/// How a kernel is interrupted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterruptMode {
    /// By SIGINT to its process group.
    #[default]
    Signal,
    /// By [`Request::Interrupt`].
    Message,
}

/// The consequence for a kernel whose code goes on after an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escalation {
    /// The kernel is interrupted again. Its code will stop some time, and its variables are worth the wait.
    Repeat,
    /// The kernel is killed after so many interrupts: its code may have no way to stop.
    KillAfter(u32),
}

/// The treatment of output that a kernel, or a program it started, writes to descriptor 1 or 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipeOutput {
    /// The text is forwarded as frames.
    Forward,
    /// The text is discarded, because the kernel reads its own descriptors and sends the same text in frames.
    Discard,
}

impl Kernel {
    /// Waits until the host at the other end of `link` says hello.
    pub async fn connect(link: Link, escalation: Escalation, ending: Ending) -> Result<Self, StartError> {
        let stream = UnixStream::from_std(link.socket).map_err(StartError::Descriptors)?;
        let stdout = OutputPipe::open(link.outputs.stdout).map_err(StartError::Descriptors)?;
        let mut stderr = OutputPipe::open(link.outputs.stderr).map_err(StartError::Descriptors)?;
        let (reader, writer) = stream.into_split();
        let mut frames = FramedRead::new(reader, FrameDecoder::default());
        let hello = tokio::time::timeout(START_TIMEOUT, frames.next()).await.map_err(|_| StartError::Late)?;
        let Some(Ok(Frame::Hello(pid))) = hello else {
            return Err(StartError::Ended(stderr.drain().trim_end().to_owned()));
        };
        let process = Process::open(pid).map_err(StartError::Descriptors)?;
        if let Ending::Reported(reports) = &ending {
            // That of an earlier process of this number.
            reports.take(pid);
        }
        let transport = Transport::socket(frames, writer);
        Ok(Self { transport, stdout, stderr, process, ending, died: None, traits: Traits::host(escalation) })
    }

    /// Waits until the kernel that was started as this process has opened a session.
    pub async fn converse<E: Display>(
        opening: impl Future<Output = Result<Session, E>>,
        traits: Traits,
        outputs: Outputs,
        spawned: Spawned,
    ) -> Result<Self, StartError> {
        let Spawned { pid, ending } = spawned;
        let process = Process::open(pid).map_err(StartError::Descriptors)?;
        let mut stdout = OutputPipe::open(outputs.stdout).map_err(StartError::Descriptors)?;
        let mut stderr = OutputPipe::open(outputs.stderr).map_err(StartError::Descriptors)?;
        // Only of use when the start fails.
        let mut output = String::new();
        let deadline = Instant::now() + START_TIMEOUT;
        let mut opening = std::pin::pin!(opening);
        let session = loop {
            tokio::select! {
                session = &mut opening => break session.map_err(|error| StartError::Ended(error.to_string()))?,
                text = stdout.read() => push_and_keep_end(&mut output, &text),
                text = stderr.read() => push_and_keep_end(&mut output, &text),
                () = process.ended() => {
                    push_and_keep_end(&mut output, &stderr.drain());
                    return Err(StartError::Ended(output.trim_end().to_owned()));
                }
                () = tokio::time::sleep_until(deadline) => return Err(StartError::Late),
            }
        };
        Ok(Self { transport: session.into(), stdout, stderr, process, ending, died: None, traits })
    }

    /// Queues a request, and waits for room if the kernel has not read earlier ones. A dead kernel shows in [`Kernel::next`].
    pub async fn send(&self, request: Request) {
        self.transport.send(request).await;
    }

    /// Sets and removes variables, if there are any changes.
    pub async fn change_variables(&self, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.send(Request::Variables(changes)).await;
        }
    }

    /// Waits for the next frame. Text from the pipes comes as frames too. `None`, and then nothing more, when the kernel is
    /// dead or sent something malformed. Cancellation loses nothing.
    pub async fn next(&mut self) -> Option<Frame> {
        let forward = self.traits.pipes == PipeOutput::Forward;
        loop {
            let died = self.died;
            tokio::select! {
                frame = self.transport.next() => return frame,
                text = self.stdout.read() => if forward { return Some(Frame::Output(Stream::Stdout, text)) },
                text = self.stderr.read() => if forward { return Some(Frame::Output(Stream::Stderr, text)) },
                () = self.process.ended(), if died.is_none() => self.died = Some(Instant::now()),
                // A frame may have arrived in the meantime.
                () = drained(died) => return self.transport.next().now_or_never().flatten(),
            }
        }
    }

    /// Takes what a pipe holds at this moment. Whatever the kernel wrote before it sent the frame just received is among it.
    pub fn drain(&mut self, stream: Stream) -> String {
        let pipe = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        match self.traits.pipes {
            PipeOutput::Forward => pipe.drain(),
            PipeOutput::Discard => String::new(),
        }
    }

    /// Whether the kernel, which sends no more, was killed by SIGKILL. False if that is not known, and if only its connection broke.
    pub async fn was_killed(&mut self) -> bool {
        // A process closes its sockets before it is dead.
        let has_ended = tokio::time::timeout(REAP_TIMEOUT, self.process.ended()).await.is_ok();
        has_ended && self.ending.signal(self.process.id()).await == Some(Signal::KILL.as_raw())
    }

    /// Interrupts the running code and the programs it has started. `earlier` interrupts did not help.
    pub async fn interrupt(&self, earlier: u32) {
        match (self.traits.escalation, self.traits.interrupt) {
            (Escalation::KillAfter(limit), _) if earlier >= limit => self.process.signal(Signal::KILL),
            (_, InterruptMode::Message) => self.send(Request::Interrupt).await,
            (_, InterruptMode::Signal) => self.process.signal(Signal::INT),
        }
    }
}

/// Adds `text` to `output`, and keeps the last [`MAX_START_OUTPUT`] bytes.
fn push_and_keep_end(output: &mut String, text: &str) {
    output.push_str(text);
    if let Some(excess) = output.len().checked_sub(MAX_START_OUTPUT) {
        let cut = (excess..=output.len()).find(|at| output.is_char_boundary(*at));
        output.drain(..cut.unwrap_or(output.len()));
    }
}

/// Waits until no more frames are expected of a kernel that died; for ever while it lives.
async fn drained(died: Option<Instant>) {
    match died {
        Some(died) => tokio::time::sleep_until(died + DRAIN_TIMEOUT).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_output_is_kept() {
        let mut output = "x".to_owned();
        push_and_keep_end(&mut output, &"€".repeat(MAX_START_OUTPUT));
        assert!(output.len() <= MAX_START_OUTPUT && output.len() > MAX_START_OUTPUT - 4, "{}", output.len());
        assert!(output.chars().all(|c| c == '€'));
    }
}
