//! A running kernel process: what it says, what it writes, and its death.

pub mod frame;
mod link;
mod pipe;
mod process;
mod sys;
mod transport;

use std::future::Future;
use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use rustix::process::Signal;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tokio_util::codec::FramedRead;

use crate::jupyter::{InterruptMode, Session, ZmtpError};
use frame::{Frame, FrameDecoder, Request, Stream};
pub use link::{Ends, Link, OutputEnds, Outputs};
use pipe::OutputPipe;
use process::Process;
pub use process::spawn;
use transport::Transport;

/// How long a kernel may take from its start until it says hello. The first one of a cold sandbox imports everything.
const START_PATIENCE: Duration = Duration::from_secs(120);
/// How long we go on reading after a kernel's death: a child of it may hold its socket open for ever.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// How much of what a kernel writes before it is ready an error shows, in bytes.
const SAID: usize = 4 << 10;

/// Why a kernel did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its program could not be run.
    #[error("failed to run `{program}`, which must be installed in the template")]
    Spawn {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// Its sockets or pipes could not be made or handed over.
    #[error("failed to set up the descriptors of a kernel")]
    Descriptors(#[source] io::Error),
    /// It ended, or spoke nonsense, before it said hello.
    #[error("kernel ended before it was ready: {0}")]
    Ended(String),
    /// It said nothing.
    #[error("kernel was not ready within {} s", START_PATIENCE.as_secs())]
    Late,
    /// Nothing here can run this language.
    #[error(
        "no kernel for language `{language}`: there are {}; {}install `{language}` in the template and run it as a command, or \
         install a Jupyter kernel for it",
        known.join(", "),
        if *is_further { "start the server with `--languages all`, or " } else { "" }
    )]
    NoSuchKernel {
        /// The language.
        language: String,
        /// What there is instead.
        known: Vec<String>,
        /// Whether it comes with the template's layer of further languages, which is not there.
        is_further: bool,
    },
    /// This language is not in the template yet.
    #[error(
        "`{language}` is still being built: this sandbox was created before the languages beyond Python, JavaScript, TypeScript, \
         Bash and C++ were ready; create a new one when `sandcove status` says that they are"
    )]
    BeingBuilt {
        /// The language.
        language: String,
    },
}

/// What happened in a kernel.
#[derive(Debug)]
pub enum Activity {
    /// It said something.
    Frame(Frame),
    /// Text came out of one of its pipes.
    Text(Stream, String),
    /// It is dead, or cannot be understood any more.
    Gone,
}

/// A kernel process. Dropping it kills the process and its group.
#[derive(Debug)]
pub struct Kernel {
    transport: Transport,
    stdout: OutputPipe,
    stderr: OutputPipe,
    process: Process,
    /// When it was found dead, if its socket has outlived it.
    died: Option<Instant>,
    stubborn: Stubborn,
    descriptors: Descriptors,
}

/// What a kernel's descriptors 1 and 2 are to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descriptors {
    /// Where output can be heard that the kernel does not tell of.
    Heard,
    /// Where the kernel repeats what it has told.
    Repeated,
}

/// What becomes of a kernel that goes on running code it was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stubborn {
    /// It is asked again, as it will stop once it gets to it and its variables are worth the wait.
    Wait,
    /// It is killed after so many requests: it may have no way to stop.
    KillAfter(u32),
}

/// Jupyter kernels keep their variables if they stop, but whether they can depends on who wrote them.
const JUPYTER: Stubborn = Stubborn::KillAfter(2);

impl Kernel {
    /// Waits until the host at the other end of `link` says hello.
    pub async fn connect(link: Link) -> Result<Self, StartError> {
        let stream = UnixStream::from_std(link.socket).map_err(StartError::Descriptors)?;
        let stdout = OutputPipe::open(link.outputs.stdout).map_err(StartError::Descriptors)?;
        let mut stderr = OutputPipe::open(link.outputs.stderr).map_err(StartError::Descriptors)?;
        let (reader, writer) = stream.into_split();
        let mut frames = FramedRead::new(reader, FrameDecoder::default());
        let hello =
            tokio::time::timeout(START_PATIENCE, frames.next()).await.map_err(|_| StartError::Late)?;
        let Some(Ok(Frame::Hello(pid))) = hello else {
            return Err(StartError::Ended(stderr.drain().trim_end().to_owned()));
        };
        let process = Process::open(pid).map_err(StartError::Descriptors)?;
        let transport = Transport::frames(frames, writer);
        Ok(Self {
            transport,
            stdout,
            stderr,
            process,
            died: None,
            stubborn: Stubborn::Wait,
            descriptors: Descriptors::Heard,
        })
    }

    /// Waits until the Jupyter kernel that was started as process `pid` is ready for a session.
    pub async fn converse(
        opening: impl Future<Output = Result<Session, ZmtpError>>,
        interrupts: InterruptMode,
        descriptors: Descriptors,
        outputs: Outputs,
        pid: i32,
    ) -> Result<Self, StartError> {
        let process = Process::open(pid).map_err(StartError::Descriptors)?;
        let mut stdout = OutputPipe::open(outputs.stdout).map_err(StartError::Descriptors)?;
        let mut stderr = OutputPipe::open(outputs.stderr).map_err(StartError::Descriptors)?;
        // What it says of its start is of use only if that fails.
        let mut said = String::new();
        let deadline = Instant::now() + START_PATIENCE;
        let mut opening = std::pin::pin!(opening);
        let session = loop {
            tokio::select! {
                session = &mut opening => break session.map_err(|error| StartError::Ended(error.to_string()))?,
                text = stdout.read() => keep_end(&mut said, &text),
                text = stderr.read() => keep_end(&mut said, &text),
                () = process.ended() => {
                    keep_end(&mut said, &stderr.drain());
                    return Err(StartError::Ended(said.trim_end().to_owned()));
                }
                () = tokio::time::sleep_until(deadline) => return Err(StartError::Late),
            }
        };
        let transport = Transport::Jupyter { session, interrupts };
        Ok(Self { transport, stdout, stderr, process, died: None, stubborn: JUPYTER, descriptors })
    }

    /// Queues a request. A dead kernel shows in [`Kernel::next`].
    pub fn request(&self, request: &Request<'_>) {
        self.transport.request(request);
    }

    /// Waits for the kernel to do something. Cancellation loses nothing. After [`Activity::Gone`] there is nothing more.
    pub async fn next(&mut self) -> Activity {
        loop {
            let died = self.died;
            tokio::select! {
                frame = self.transport.next() => return frame.map_or(Activity::Gone, Activity::Frame),
                text = self.stdout.read() => if self.descriptors == Descriptors::Heard {
                    return Activity::Text(Stream::Stdout, text);
                },
                text = self.stderr.read() => if self.descriptors == Descriptors::Heard {
                    return Activity::Text(Stream::Stderr, text);
                },
                () = self.process.ended(), if died.is_none() => self.died = Some(Instant::now()),
                () = last_words(died) => return Activity::Gone,
            }
        }
    }

    /// What its pipes hold at this moment. Whatever it wrote before it sent the frame just received is among it.
    pub fn drain(&mut self, stream: Stream) -> String {
        let pipe = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        if self.descriptors == Descriptors::Heard { pipe.drain() } else { String::new() }
    }

    /// Chooses what becomes of it when it does not stop.
    pub fn set_stubborn(&mut self, stubborn: Stubborn) {
        self.stubborn = stubborn;
    }

    /// Interrupts the code it runs, and the programs that code has started. `earlier` times this did not help.
    pub fn interrupt(&self, earlier: u32) {
        match (self.stubborn, &self.transport) {
            (Stubborn::KillAfter(limit), _) if earlier >= limit => self.process.signal(Signal::KILL),
            (_, Transport::Jupyter { session, interrupts: InterruptMode::Message }) => session.interrupt(),
            _ => self.process.signal(Signal::INT),
        }
    }
}

/// Adds `text` to what has been said, of which the end is kept.
fn keep_end(said: &mut String, text: &str) {
    said.push_str(text);
    if let Some(excess) = said.len().checked_sub(SAID) {
        let cut = (excess..=said.len()).find(|at| said.is_char_boundary(*at));
        said.drain(..cut.unwrap_or(said.len()));
    }
}

async fn last_words(died: Option<Instant>) {
    match died {
        Some(died) => tokio::time::sleep_until(died + LAST_WORDS).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_what_was_said_is_kept() {
        let mut said = "x".to_owned();
        keep_end(&mut said, &"€".repeat(SAID));
        assert!(said.len() <= SAID && said.len() > SAID - 4, "{}", said.len());
        assert!(said.chars().all(|c| c == '€'));
    }
}
