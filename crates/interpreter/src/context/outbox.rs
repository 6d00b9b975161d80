//! The events of one execution: what the frames of its kernel mean to the client. Nothing here waits.

use std::collections::VecDeque;
use std::time::Duration;

use sandcove_wire::interpreter::{Event, ExecutionError, ResultData};
use tokio::time::Instant;

use super::output::OutputBuffer;
use crate::kernel::Kernel;
use crate::kernel::frame::{Frame, Stream};

/// Time without an event after which a keepalive is sent, by which a client that has vanished is noticed.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Events held for a client that does not read, besides those in its channel. When there are more the kernel has to wait.
const MAX_HELD_EVENTS: usize = 64;

/// Events that have not been handed to the client yet, and output that has not become an event yet.
#[derive(Debug)]
pub(super) struct Outbox {
    events: VecDeque<Event>,
    output: OutputBuffer,
    last_event: Instant,
    failed: bool,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            events: VecDeque::new(),
            output: OutputBuffer::default(),
            last_event: Instant::now(),
            failed: false,
        }
    }
}

impl Outbox {
    /// Whether another frame may be taken.
    pub(super) fn has_room(&self) -> bool {
        self.events.len() < MAX_HELD_EVENTS
    }

    /// Whether there is no event for the client.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The oldest event.
    pub(super) fn pop(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Drops all events, as there is no client.
    pub(super) fn discard(&mut self) {
        self.events.clear();
    }

    /// All events that are left.
    pub(super) fn into_events(self) -> VecDeque<Event> {
        self.events
    }

    /// Takes what the kernel said. What it wrote to its pipes before is drained, so that it comes before a result or error.
    pub(super) fn take(&mut self, frame: Frame, kernel: &mut Kernel) {
        match frame {
            Frame::Output(stream, text) => self.output.push(stream, text, Instant::now()),
            Frame::Flush(stream) => {
                if let Some(event) = self.output.take(stream) {
                    self.add(event);
                }
            }
            Frame::Started(execution_count) => self.add(Event::NumberOfExecutions { execution_count }),
            Frame::Result(bundle) => {
                self.flush(kernel);
                self.add(Event::Result(Box::new(ResultData::from_bundle(bundle.data, bundle.main))));
            }
            Frame::Error(error) => {
                self.flush(kernel);
                self.fail(error);
            }
            Frame::Hello(_) | Frame::Done { .. } => {}
        }
    }

    /// Adds the last events: the rest of the output, `error` if the code did not end by itself, and the end.
    pub(super) fn end(&mut self, kernel: &mut Kernel, error: Option<ExecutionError>) {
        self.flush(kernel);
        if let Some(error) = error {
            self.fail(error);
        }
        self.add(Event::EndOfExecution);
    }

    /// When [`Outbox::flush_due`] is to be called.
    pub(super) fn output_due(&self) -> Option<Instant> {
        self.output.due()
    }

    /// Makes events of output that has waited long enough for more.
    pub(super) fn flush_due(&mut self) {
        for event in self.output.take_due(Instant::now()) {
            self.add(event);
        }
    }

    /// When [`Outbox::keep_alive`] is to be called.
    pub(super) fn keepalive_due(&self) -> Option<Instant> {
        self.events.is_empty().then(|| self.last_event + KEEPALIVE)
    }

    /// Adds a keepalive.
    pub(super) fn keep_alive(&mut self) {
        self.add(Event::Keepalive);
    }

    fn add(&mut self, event: Event) {
        self.last_event = Instant::now();
        self.events.push_back(event);
    }

    /// Clients know one error per execution; the first one is the cause.
    fn fail(&mut self, error: ExecutionError) {
        if !std::mem::replace(&mut self.failed, true) {
            self.add(Event::Error(error));
        }
    }

    /// Makes events of all output written before now, so that they come before the next event.
    fn flush(&mut self, kernel: &mut Kernel) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.output.push(stream, kernel.drain(stream), Instant::now());
        }
        for event in self.output.take_all() {
            self.add(event);
        }
    }
}
