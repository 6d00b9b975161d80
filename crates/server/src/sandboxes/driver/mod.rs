//! One task per sandbox owns its [`Handle`]: requests come to it as messages and are answered by oneshot, its visible
//! state goes out on a watch channel, and every change is stored before it is answered. Callers that hang up cancel
//! nothing.

mod apply;
mod change;

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sandcove_isolate::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::Span;

use super::admission::Slot;
use super::journal::Journal;
use super::lifecycle::{Decision, Denial, Phase, Transition, after_crash, decide};
use super::record::View;
use super::registry::Shared;
use super::request::{Command, Outcome, Request, answer};
use crate::events::KillReason;
use crate::teams::Team;
use crate::{Error, Result, clock};
use change::Underway;

/// The wall clock is looked at this often, so that a jump forward is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// The last pause or resume, once it has been answered.
struct Told {
    transition: Transition,
    outcome: Outcome,
    at: Instant,
}

impl Told {
    /// Whether it is what `command` asks for, and asked for before the answer was there: as those who joined it did.
    fn answers(&self, command: &Command) -> bool {
        let same = matches!(
            (self.transition, &command.request),
            (Transition::Pause(_), Request::Pause(_)) | (Transition::Resume(_), Request::Resume { .. })
        );
        same && command.asked < self.at
    }
}

pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) team: Team,
    /// Its processes; none after a pause that kept only files.
    pub(super) handle: Option<Handle>,
    pub(super) view: watch::Sender<View>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) journal: Arc<Journal>,
    /// Held while it counts against the team's limit.
    pub(super) slot: Option<Slot>,
    underway: Option<Underway>,
    waiting: VecDeque<Command>,
    told: Option<Told>,
    /// Why it is being stopped, once it is.
    ending: KillReason,
    /// After a change that failed: when time that is up is acted upon again at the earliest.
    not_before: Option<Instant>,
}

enum Event {
    Ended(Result<Option<Handle>>),
    Crashed,
    Asked(Command),
    LookAtClock,
    Detached,
}

impl Driver {
    pub(super) fn new(
        shared: Arc<Shared>,
        team: Team,
        handle: Option<Handle>,
        view: watch::Sender<View>,
        commands: mpsc::Receiver<Command>,
        journal: Arc<Journal>,
        slot: Option<Slot>,
    ) -> Self {
        Self {
            shared,
            team,
            handle,
            view,
            commands,
            journal,
            slot,
            underway: None,
            waiting: VecDeque::new(),
            told: None,
            ending: KillReason::Request,
            not_before: None,
        }
    }

    /// Runs until the sandbox is gone or the server stops; a stop leaves the sandbox as it is.
    pub(super) async fn run(mut self) {
        while self.phase() != Phase::Gone {
            match self.next_event().await {
                Event::Ended(result) => self.finish(result).await,
                Event::Crashed => self.crashed(),
                Event::Asked(command) => self.receive(command).await,
                Event::LookAtClock => self.expire_if_due(clock::now()),
                Event::Detached => return,
            }
        }
        self.shared.forget(&self.view.borrow().details.id);
    }

    async fn next_event(&mut self) -> Event {
        let phase = self.phase();
        let nap = self.nap(clock::now());
        let idle = self.underway.is_none();
        let crashed = async {
            match &self.handle {
                Some(handle) if after_crash(phase).is_some() => handle.wait().await,
                _ => pending().await,
            }
        };
        let ended = async {
            match &mut self.underway {
                Some(underway) => (&mut underway.work).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            result = ended => Event::Ended(result),
            _ = crashed => Event::Crashed,
            command = self.commands.recv() => command.map_or(Event::Detached, Event::Asked),
            () = sleep(nap), if phase == Phase::Running => Event::LookAtClock,
            () = self.shared.stopping.cancelled(), if idle => Event::Detached,
        }
    }

    fn phase(&self) -> Phase {
        self.view.borrow().phase
    }

    /// Until the end, but no longer than the clock may go unwatched.
    fn nap(&self, now: Timestamp) -> Duration {
        let left =
            Duration::try_from(now.duration_until(self.view.borrow().session.end_at)).unwrap_or_default();
        let barred = self.not_before.map(|time| time.saturating_duration_since(Instant::now()));
        left.max(barred.unwrap_or_default()).min(LONGEST_SLEEP)
    }

    async fn receive(&mut self, command: Command) {
        match decide(self.phase(), command.request.ask()) {
            Decision::Begin(transition) => self.begin_for(transition, command),
            Decision::Join => match &mut self.underway {
                Some(underway) => underway.joined.push(command.reply),
                None => answer(command.reply, Err(Error::Internal("nothing to join"))),
            },
            Decision::Wait => self.waiting.push_back(command),
            Decision::Apply => {
                let result = self.apply(command.request).await;
                answer(command.reply, result);
            }
            Decision::Deny(denial) => {
                let result = match &self.told {
                    Some(told) if told.answers(&command) => Ok(told.outcome),
                    _ => Err(self.denied(denial)),
                };
                answer(command.reply, result);
            }
        }
    }

    fn crashed(&mut self) {
        let Some(transition) = after_crash(self.phase()) else { return };
        let id = self.view.borrow().details.id.clone();
        tracing::warn!(sandbox_id = %id, "sandbox ended by itself");
        if let Some(interrupted) = self.underway.take() {
            for reply in interrupted.joined {
                answer(
                    reply,
                    Err(match transition {
                        Transition::Stop => Error::SandboxNotFound(id.to_string()),
                        _ => Error::InTransition(id.clone()),
                    }),
                );
            }
        }
        self.ending = KillReason::Unknown;
        self.begin(transition, Duration::ZERO, String::new(), &Span::none());
    }

    fn expire_if_due(&mut self, now: Timestamp) {
        if self.not_before.is_some_and(|time| Instant::now() < time) {
            return;
        }
        let view = self.view.borrow();
        let due = view.phase == Phase::Running && view.session.is_over(now);
        let transition = view.settings.on_expiry.transition();
        drop(view);
        if due {
            self.ending = KillReason::Timeout;
            self.begin(transition, Duration::ZERO, String::new(), &Span::none());
        }
    }

    fn denied(&self, denial: Denial) -> Error {
        let id = self.view.borrow().details.id.clone();
        match denial {
            Denial::NotFound => Error::SandboxNotFound(id.to_string()),
            Denial::AlreadyPaused => Error::AlreadyPaused(id),
            Denial::AlreadyRunning => Error::AlreadyRunning(id),
            Denial::InTransition => Error::InTransition(id),
            Denial::BeingKilled => Error::BeingKilled(id),
        }
    }
}
