//! A running kernel process: what it says, what it writes, and its death.

pub mod frame;
mod pipe;
mod sys;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::AsyncWriteExt;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe as tokio_pipe};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::codec::FramedRead;

use frame::{Frame, FrameDecoder, Request, Stream};
use pipe::OutputPipe;

/// How long a kernel may take from its start until it says hello. The first one of a cold sandbox imports everything.
const START_PATIENCE: Duration = Duration::from_secs(120);
/// How long we go on reading after a kernel's death: a child of it may hold its socket open for ever.
const LAST_WORDS: Duration = Duration::from_millis(200);

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
        "no kernel for language `{0}`: there are python, javascript, typescript and bash; \
         install `{0}` in the template and run it as a command"
    )]
    NoSuchKernel(String),
}

/// Our ends of what a kernel is given at its start.
#[derive(Debug)]
pub struct Link {
    /// Frames, both ways.
    pub socket: StdUnixStream,
    /// Where its descriptor 1 can be read.
    pub stdout: OwnedFd,
    /// Where its descriptor 2 can be read.
    pub stderr: OwnedFd,
}

/// What a kernel process is given: the other ends of a [`Link`].
#[derive(Debug)]
pub struct Ends {
    /// Frames, both ways.
    pub socket: OwnedFd,
    /// Its descriptor 1.
    pub stdout: OwnedFd,
    /// Its descriptor 2.
    pub stderr: OwnedFd,
}

impl Link {
    /// A new socket pair and two pipes, all closed on exec.
    pub fn pair() -> io::Result<(Self, Ends)> {
        let (socket, kernel_socket) = StdUnixStream::pair()?;
        let (stdout, kernel_stdout) = io::pipe()?;
        let (stderr, kernel_stderr) = io::pipe()?;
        socket.set_nonblocking(true)?;
        let ours = Self { socket, stdout: stdout.into(), stderr: stderr.into() };
        let theirs =
            Ends { socket: kernel_socket.into(), stdout: kernel_stdout.into(), stderr: kernel_stderr.into() };
        Ok((ours, theirs))
    }
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
    frames: FramedRead<OwnedReadHalf, FrameDecoder>,
    requests: mpsc::UnboundedSender<Bytes>,
    stdout: OutputPipe,
    stderr: OutputPipe,
    process: Process,
    /// When it was found dead, if its socket has outlived it.
    died: Option<Instant>,
    stubborn: Stubborn,
}

/// What becomes of a kernel that goes on running code it was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stubborn {
    /// It is asked again, as it will stop once it gets to it and its variables are worth the wait.
    Wait,
    /// It is killed: it may have no way to stop.
    Kill,
}

impl Kernel {
    /// Waits until the kernel at the other end of `link` says hello.
    pub async fn connect(link: Link) -> Result<Self, StartError> {
        let stream = UnixStream::from_std(link.socket).map_err(StartError::Descriptors)?;
        let stdout = tokio_pipe::Receiver::from_owned_fd(link.stdout).map_err(StartError::Descriptors)?;
        let stderr = tokio_pipe::Receiver::from_owned_fd(link.stderr).map_err(StartError::Descriptors)?;
        let (reader, writer) = stream.into_split();
        let mut frames = FramedRead::new(reader, FrameDecoder::default());
        let hello =
            tokio::time::timeout(START_PATIENCE, frames.next()).await.map_err(|_| StartError::Late)?;
        let mut stderr = OutputPipe::new(stderr);
        let Some(Ok(Frame::Hello(pid))) = hello else {
            return Err(StartError::Ended(stderr.drain().trim_end().to_owned()));
        };
        let process = Process::open(pid).map_err(StartError::Descriptors)?;
        let (requests, queue) = mpsc::unbounded_channel();
        tokio::spawn(write_requests(writer, queue));
        Ok(Self {
            frames,
            requests,
            stdout: OutputPipe::new(stdout),
            stderr,
            process,
            died: None,
            stubborn: Stubborn::Wait,
        })
    }

    /// Queues a request. A dead kernel shows in [`Kernel::next`].
    pub fn request(&self, request: &Request<'_>) {
        let _ = self.requests.send(request.encode());
    }

    /// Waits for the kernel to do something. Cancellation loses nothing. After [`Activity::Gone`] there is nothing more.
    pub async fn next(&mut self) -> Activity {
        loop {
            let died = self.died;
            tokio::select! {
                frame = self.frames.next() => return match frame {
                    Some(Ok(frame)) => Activity::Frame(frame),
                    Some(Err(error)) => {
                        tracing::warn!(%error, "lost a kernel");
                        Activity::Gone
                    }
                    None => Activity::Gone,
                },
                text = self.stdout.read() => return Activity::Text(Stream::Stdout, text),
                text = self.stderr.read() => return Activity::Text(Stream::Stderr, text),
                () = self.process.ended(), if died.is_none() => self.died = Some(Instant::now()),
                () = last_words(died) => return Activity::Gone,
            }
        }
    }

    /// What its pipes hold at this moment. Whatever it wrote before it sent the frame just received is among it.
    pub fn drain(&mut self, stream: Stream) -> String {
        match stream {
            Stream::Stdout => self.stdout.drain(),
            Stream::Stderr => self.stderr.drain(),
        }
    }

    /// Chooses what becomes of it when it does not stop.
    pub fn set_stubborn(&mut self, stubborn: Stubborn) {
        self.stubborn = stubborn;
    }

    /// Interrupts code that has not stopped in spite of earlier interrupts.
    pub fn insist(&self) {
        match self.stubborn {
            Stubborn::Wait => self.interrupt(),
            Stubborn::Kill => self.process.signal(Signal::KILL),
        }
    }

    /// Interrupts the code it runs, and the programs that code has started.
    pub fn interrupt(&self) {
        self.process.signal(Signal::INT);
    }
}

async fn write_requests(mut writer: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<Bytes>) {
    while let Some(frame) = queue.recv().await {
        if let Err(error) = writer.write_all(&frame).await {
            tracing::debug!(%error, "failed to write to a kernel");
            return;
        }
    }
}

async fn last_words(died: Option<Instant>) {
    match died {
        Some(died) => tokio::time::sleep_until(died + LAST_WORDS).await,
        None => std::future::pending().await,
    }
}

/// A kernel's process, which leads a group of its own. It need not be a child of ours.
#[derive(Debug)]
struct Process {
    pid: Pid,
    handle: AsyncFd<OwnedFd>,
}

impl Process {
    fn open(pid: i32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let handle = sys::watch(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)?;
        Ok(Self { pid, handle })
    }

    async fn ended(&self) {
        // An error would mean the runtime is shutting down; nobody needs to know about a death then.
        if self.handle.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Signals the group, unless its leader is dead: the number might be another process by now.
    fn signal(&self, signal: Signal) {
        let mut state = [PollFd::new(&self.handle, PollFlags::IN)];
        if matches!(rustix::event::poll(&mut state, Some(&Timespec::default())), Ok(0)) {
            let _ = rustix::process::kill_process_group(self.pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}
