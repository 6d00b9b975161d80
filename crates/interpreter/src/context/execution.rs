//! One execution: frames of the kernel in, events for the client out, until the kernel is idle again.

use std::collections::VecDeque;
use std::time::Duration;

use sandcove_wire::interpreter::{Event, ExecutionError};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::outbox::Outbox;
use super::queue::Control;
use crate::kernel::Kernel;
use crate::kernel::frame::Frame;
use crate::kernel::request::Request;

/// First pause before code that did not stop is interrupted again; it doubles each time.
const INTERRUPT_AGAIN: Duration = Duration::from_secs(1);

/// The reason why a kernel that got SIGKILL died. Nothing in a sandbox says who sent it, and programs seldom do.
const KILLED: &str = "The kernel was killed (SIGKILL), as it is when the sandbox is out of memory.";

/// How an execution ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The kernel is idle again.
    Done,
    /// The code has ended, and asked the kernel to end with it.
    Exited,
    /// The kernel died.
    Died,
    /// The execution was ended for the sake of this control.
    Control(Control),
    /// The last handle of the context was dropped.
    Abandoned,
}

/// Runs `code` and sends its events to `client`. When the client leaves the code is interrupted, and this returns only
/// once the kernel is idle.
pub(super) async fn run(
    kernel: &mut Kernel,
    code: String,
    client: mpsc::Sender<Event>,
    controls: &mut mpsc::Receiver<Control>,
) -> Outcome {
    kernel.send(Request::Execute(code)).await;
    let mut outbox = Outbox::default();
    let mut presence = Presence::Listening;
    let outcome = loop {
        tokio::select! {
            control = controls.recv() => match control {
                // A kernel that runs code has been started.
                Some(Control::Start(reply)) => { let _ = reply.send(Ok(())); }
                Some(control) => break Outcome::Control(control),
                None => break Outcome::Abandoned,
            },
            frame = kernel.next(), if presence.has_left() || outbox.has_room() => match frame {
                Some(Frame::Done { leaving: false }) => break Outcome::Done,
                Some(Frame::Done { leaving: true }) => break Outcome::Exited,
                Some(frame) => outbox.take(frame, kernel),
                None => break Outcome::Died,
            },
            permit = client.reserve(), if !presence.has_left() && !outbox.is_empty() => match permit {
                Ok(permit) => if let Some(event) = outbox.pop() { permit.send(event) },
                Err(_) => presence.leave(),
            },
            () = client.closed(), if !presence.has_left() => presence.leave(),
            () = at(outbox.output_due()) => outbox.flush_due(),
            () = at(outbox.keepalive_due()), if !presence.has_left() => outbox.keep_alive(),
            () = at(presence.interrupt_due()) => kernel.interrupt(presence.count_interrupt()).await,
        }
        if presence.has_left() {
            outbox.discard();
        }
    };
    match outcome {
        Outcome::Done | Outcome::Exited => outbox.end(kernel, None),
        Outcome::Died => {
            let was_killed = kernel.was_killed().await;
            outbox.end(kernel, Some(restarting(was_killed)));
        }
        Outcome::Control(_) | Outcome::Abandoned => outbox.end(kernel, Some(ended_early())),
    }
    // A client that reads slowly must not keep the next execution waiting.
    tokio::spawn(deliver(client, outbox.into_events()));
    outcome
}

/// Ends an execution that never ran.
pub(super) async fn fail(client: mpsc::Sender<Event>, error: ExecutionError) {
    deliver(client, [Event::Error(error), Event::EndOfExecution].into()).await;
}

/// The error of an execution whose context was restarted or removed.
pub(super) fn ended_early() -> ExecutionError {
    ExecutionError {
        name: "UnexpectedEndOfExecution".to_owned(),
        value: "Connection to the execution was closed before the execution was finished".to_owned(),
        traceback: String::new(),
    }
}

/// The error of an execution whose kernel died. Its name and value are those that clients know; the traceback is empty in the official
/// server, and here has the likely reason.
fn restarting(was_killed: bool) -> ExecutionError {
    let reason = if was_killed { KILLED } else { "" };
    ExecutionError {
        name: "ContextRestarting".to_owned(),
        value: "Context was restarted".to_owned(),
        traceback: reason.to_owned(),
    }
}

async fn deliver(client: mpsc::Sender<Event>, events: VecDeque<Event>) {
    for event in events {
        if client.send(event).await.is_err() {
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

/// Whether the client is there, and if not, when to interrupt the code next.
#[derive(Debug)]
enum Presence {
    Listening,
    Left { interrupt_at: Instant, interrupts: u32 },
}

impl Presence {
    fn has_left(&self) -> bool {
        matches!(self, Self::Left { .. })
    }

    fn leave(&mut self) {
        *self = Self::Left { interrupt_at: Instant::now(), interrupts: 0 };
    }

    fn interrupt_due(&self) -> Option<Instant> {
        match self {
            Self::Listening => None,
            Self::Left { interrupt_at, .. } => Some(*interrupt_at),
        }
    }

    /// Counts an interrupt, and returns how many there were before.
    fn count_interrupt(&mut self) -> u32 {
        let Self::Left { interrupt_at, interrupts } = self else { return 0 };
        let earlier = *interrupts;
        *interrupt_at += INTERRUPT_AGAIN * 2_u32.saturating_pow(earlier);
        *interrupts += 1;
        earlier
    }
}
