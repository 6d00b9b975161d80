//! One execution: from the request to the kernel to the last line for the client.

use std::collections::VecDeque;
use std::time::Duration;

use sandcove_wire::interpreter::{Event, ExecutionError, ResultData};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Control;
use super::output::OutputBuffer;
use crate::kernel::frame::{Frame, Request, Stream};
use crate::kernel::{Activity, Kernel};

/// After so long without a line a keepalive is sent, by which a client that has vanished is noticed.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Lines we hold for a client that does not read, besides those already handed over. Then the kernel has to wait.
const HELD_LINES: usize = 64;
/// First pause before code that did not stop is interrupted again; it doubles each time.
const INTERRUPT_AGAIN: Duration = Duration::from_secs(1);

/// How an execution ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The kernel is idle again.
    Done,
    /// The code has ended, and asked the kernel to end with it.
    Left,
    /// The kernel died.
    Died,
    /// The execution was ended for the sake of this.
    Control(Control),
    /// Nobody holds the context any more.
    Abandoned,
}

/// Runs `code` and sends what it does to `events`. When the client goes away the code is interrupted, and this returns
/// only once the kernel is idle.
pub(super) async fn run(
    kernel: &mut Kernel,
    code: &str,
    events: mpsc::Sender<Event>,
    controls: &mut mpsc::UnboundedReceiver<Control>,
) -> Outcome {
    kernel.request(&Request::Execute(code));
    let mut lines = Lines::default();
    let mut client = Client::Listening;
    let outcome = loop {
        tokio::select! {
            control = controls.recv() => match control {
                // A kernel that runs code has been started.
                Some(Control::Start(reply)) => { let _ = reply.send(Ok(())); }
                Some(control) => break Outcome::Control(control),
                None => break Outcome::Abandoned,
            },
            activity = kernel.next(), if client.is_gone() || lines.ready.len() < HELD_LINES => match activity {
                Activity::Frame(Frame::Done { leaving: false }) => break Outcome::Done,
                Activity::Frame(Frame::Done { leaving: true }) => break Outcome::Left,
                Activity::Frame(frame) => lines.frame(frame, kernel),
                Activity::Text(stream, text) => lines.text(stream, text),
                Activity::Gone => break Outcome::Died,
            },
            permit = events.reserve(), if !client.is_gone() && !lines.ready.is_empty() => match permit {
                Ok(permit) => if let Some(event) = lines.ready.pop_front() { permit.send(event) },
                Err(_) => client.leave(),
            },
            () = events.closed(), if !client.is_gone() => client.leave(),
            () = at(lines.output.due()) => lines.send_due(),
            () = at(lines.keepalive_due()), if !client.is_gone() => lines.add(Event::Keepalive),
            () = at(client.interrupt_due()) => {
                kernel.interrupt(client.interrupted());
            }
        }
        if client.is_gone() {
            lines.ready.clear();
        }
    };
    match outcome {
        Outcome::Done | Outcome::Left => lines.end(kernel, None),
        Outcome::Died => lines.end(kernel, Some(restarting())),
        Outcome::Control(_) | Outcome::Abandoned => lines.end(kernel, Some(ended_early())),
    }
    // A client that reads slowly must not keep the next execution waiting.
    tokio::spawn(deliver(events, lines.ready));
    outcome
}

/// Ends an execution that never ran.
pub(super) async fn fail(events: mpsc::Sender<Event>, error: ExecutionError) {
    deliver(events, [Event::Error(error), Event::EndOfExecution].into()).await;
}

/// The error of an execution whose context was restarted or removed.
pub(super) fn ended_early() -> ExecutionError {
    ExecutionError {
        name: "UnexpectedEndOfExecution".to_owned(),
        value: "Connection to the execution was closed before the execution was finished".to_owned(),
        traceback: String::new(),
    }
}

/// The error of an execution whose kernel died.
fn restarting() -> ExecutionError {
    ExecutionError {
        name: "ContextRestarting".to_owned(),
        value: "Context was restarted".to_owned(),
        traceback: String::new(),
    }
}

async fn deliver(events: mpsc::Sender<Event>, lines: VecDeque<Event>) {
    for event in lines {
        if events.send(event).await.is_err() {
            return;
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Whether somebody listens, and if not, when to interrupt next.
#[derive(Debug)]
enum Client {
    Listening,
    Gone { interrupt_at: Instant, interrupts: u32 },
}

impl Client {
    fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }

    fn leave(&mut self) {
        *self = Self::Gone { interrupt_at: Instant::now(), interrupts: 0 };
    }

    fn interrupt_due(&self) -> Option<Instant> {
        match self {
            Self::Listening => None,
            Self::Gone { interrupt_at, .. } => Some(*interrupt_at),
        }
    }

    /// Counts an interrupt, and gives how many there were before.
    fn interrupted(&mut self) -> u32 {
        let Self::Gone { interrupt_at, interrupts } = self else { return 0 };
        let earlier = *interrupts;
        *interrupt_at += INTERRUPT_AGAIN * 2_u32.saturating_pow(earlier);
        *interrupts += 1;
        earlier
    }
}

/// The lines of an execution, up to the moment they are handed to the client.
#[derive(Debug)]
struct Lines {
    ready: VecDeque<Event>,
    output: OutputBuffer,
    last: Instant,
    failed: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Self { ready: VecDeque::new(), output: OutputBuffer::default(), last: Instant::now(), failed: false }
    }
}

impl Lines {
    fn add(&mut self, event: Event) {
        self.last = Instant::now();
        self.ready.push_back(event);
    }

    fn text(&mut self, stream: Stream, text: String) {
        self.output.push(stream, text, Instant::now());
    }

    fn frame(&mut self, frame: Frame, kernel: &mut Kernel) {
        match frame {
            Frame::Text(stream, text) => self.text(stream, text),
            Frame::Flush(stream) => {
                if let Some(event) = self.output.take(stream) {
                    self.add(event);
                }
            }
            Frame::Started(execution_count) => self.add(Event::NumberOfExecutions { execution_count }),
            Frame::Shown(shown) => {
                self.send_output(kernel);
                self.add(Event::Result(Box::new(ResultData::from_bundle(shown.data, shown.main))));
            }
            Frame::Failed(error) => {
                self.send_output(kernel);
                self.fail(error);
            }
            Frame::Hello(_) | Frame::Done { .. } => {}
        }
    }

    /// Clients know one error per execution; the first one is the cause.
    fn fail(&mut self, error: ExecutionError) {
        if !std::mem::replace(&mut self.failed, true) {
            self.add(Event::Error(error));
        }
    }

    /// Sends what was written before now, so that it comes before whatever is sent next.
    fn send_output(&mut self, kernel: &mut Kernel) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.text(stream, kernel.drain(stream));
        }
        for event in self.output.take_all() {
            self.add(event);
        }
    }

    fn send_due(&mut self) {
        for event in self.output.take_due(Instant::now()) {
            self.add(event);
        }
    }

    fn keepalive_due(&self) -> Option<Instant> {
        self.ready.is_empty().then(|| self.last + KEEPALIVE)
    }

    fn end(&mut self, kernel: &mut Kernel, error: Option<ExecutionError>) {
        self.send_output(kernel);
        if let Some(error) = error {
            self.fail(error);
        }
        self.add(Event::EndOfExecution);
    }
}
