//! One task per sandbox owns its [`Handle`]: requests come to it as messages and are answered by oneshot, its visible
//! state goes out on a watch channel, and every change is stored before it is answered. Callers that hang up cancel
//! nothing.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use jiff::Timestamp;
use sandcove_isolate::{Handle, crash};
use sandcove_wire::api::network::NetworkUpdate;
use sandcove_wire::api::observe::LogLevel;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use super::admission::Slot;
use super::journal::Journal;
use super::lifecycle::{Decision, Denial, Keep, Phase, Session, Transition, after_crash, decide};
use super::live::Live;
use super::network::InvalidNetwork;
use super::record::{Settings, StoredState, View};
use super::registry::Shared;
use super::request::{Command, Outcome, Reply, Request, answer, answer_all};
use super::work::{Subject, Work};
use crate::events::{Happened, KillReason, describe};
use crate::teams::Team;
use crate::{Error, Result, clock, events, traces};

/// Freezing takes at least this long, so that callers who ask for it at once share its answer: the second of two
/// simultaneous requests would else come when the sandbox is paused already, which is an error.
const SETTLE: Duration = Duration::from_millis(10);
/// The wall clock is looked at this often, so that a jump forward is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);
/// How long after a failed change time that is up is acted upon again: what is in the way, such as a full disk, stays a while.
const RETRY: Duration = Duration::from_secs(2);
/// A refresh gives at least this much.
const LEAST_REFRESH: Duration = Duration::from_secs(15);
/// A wake-up by traffic gives at least this much.
const LEAST_WAKE: Duration = Duration::from_secs(300);

/// A change of phase that is being made.
struct Underway {
    transition: Transition,
    work: Work,
    /// Those who get its outcome.
    joined: Vec<Reply>,
    /// The length of the session a resume begins.
    timeout: Duration,
    /// What a resume changes of the expiry policy.
    auto_pause: Option<bool>,
    span: Span,
}

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
        let (underway, waiting, told, ending) = (None, VecDeque::new(), None, KillReason::Request);
        let not_before = None;
        Self {
            shared,
            team,
            handle,
            view,
            commands,
            journal,
            slot,
            underway,
            waiting,
            told,
            ending,
            not_before,
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

    fn begin_for(&mut self, transition: Transition, command: Command) {
        let (timeout, auto_pause, settle) = match command.request {
            Request::Resume { timeout, auto_pause, .. } => (timeout, auto_pause, SETTLE),
            Request::Connect { timeout, .. } => (timeout, None, Duration::ZERO),
            Request::Wake => (self.view.borrow().details.timeout.max(LEAST_WAKE), None, Duration::ZERO),
            Request::Snapshot(_) | Request::Fork(_) => Default::default(),
            _ => (Duration::ZERO, None, SETTLE),
        };
        if matches!(transition, Transition::Resume(_)) {
            match self.shared.admission.take(self.team.id, self.team.max_sandboxes) {
                Ok(slot) => self.slot = Some(slot),
                Err(error) => return answer(command.reply, Err(error)),
            }
        }
        let name = match command.request {
            Request::Snapshot(name) | Request::Fork(name) => name,
            Request::Kill(reason) => {
                self.ending = reason;
                String::new()
            }
            _ => String::new(),
        };
        self.begin(transition, settle, name, &command.span);
        if let Some(underway) = &mut self.underway {
            underway.joined.push(command.reply);
            underway.timeout = timeout;
            underway.auto_pause = auto_pause;
        }
    }

    /// `name` is what a snapshot is kept under, `cause` what asks for the change.
    fn begin(&mut self, transition: Transition, settle: Duration, name: String, cause: &Span) {
        let subject = Subject {
            shared: self.shared.clone(),
            view: self.view.borrow().clone(),
            handle: self.handle.clone(),
        };
        let work = match transition {
            Transition::Pause(keep) => subject.pause(keep),
            Transition::Resume(from) => subject.resume(from),
            Transition::Snapshot => subject.snapshot(name),
            Transition::Stop => subject.stop(self.ending),
        };
        let work: Work = if settle.is_zero() || transition == Transition::Stop {
            work
        } else {
            Box::pin(async move { tokio::join!(work, sleep(settle)).0 })
        };
        let span = self.span(transition, cause);
        self.underway = Some(Underway {
            transition,
            work: work.instrument(span.clone()).boxed(),
            joined: Vec::new(),
            timeout: Duration::ZERO,
            auto_pause: None,
            span,
        });
        self.view.send_modify(|view| {
            view.phase = transition.during();
            // Streams outlast the moment of a snapshot.
            if transition != Transition::Snapshot
                && let Some(live) = view.live.take()
            {
                live.end();
            }
        });
    }

    fn span(&self, transition: Transition, cause: &Span) -> Span {
        let (id, team) = (&self.view.borrow().details.id, self.team.id);
        match transition {
            Transition::Pause(_) => {
                info_span!(parent: cause, "pause", team_id = %team, sandbox_id = %id, otel.status_code = Empty)
            }
            Transition::Resume(_) => {
                info_span!(parent: cause, "resume", team_id = %team, sandbox_id = %id, otel.status_code = Empty)
            }
            Transition::Snapshot => {
                info_span!(parent: cause, "snapshot", team_id = %team, sandbox_id = %id, otel.status_code = Empty)
            }
            Transition::Stop => {
                info_span!(parent: cause, "kill", team_id = %team, sandbox_id = %id, otel.status_code = Empty)
            }
        }
    }

    async fn finish(&mut self, result: Result<Option<Handle>>) {
        let Some(Underway { transition, joined, timeout, auto_pause, span, .. }) = self.underway.take()
        else {
            return;
        };
        let outcome = self.conclude(transition, result, timeout, auto_pause).instrument(span.clone()).await;
        if outcome.is_err() {
            traces::failed(&span);
        }
        let told = |outcome: &Outcome| Told { transition, outcome: *outcome, at: Instant::now() };
        self.told = outcome.as_ref().ok().map(told);
        drop(span);
        answer_all(joined, outcome);
        for command in std::mem::take(&mut self.waiting) {
            self.receive(command).await;
        }
    }

    /// Makes what the change has led to known.
    async fn conclude(
        &mut self,
        transition: Transition,
        result: Result<Option<Handle>>,
        timeout: Duration,
        auto_pause: Option<bool>,
    ) -> Result<Outcome> {
        match (transition, result) {
            (Transition::Pause(keep), Ok(handle)) => {
                self.handle = handle;
                self.paused(keep).await
            }
            (Transition::Resume(_), Ok(handle)) => {
                self.handle = handle;
                self.resumed(timeout, auto_pause).await
            }
            (Transition::Snapshot, result) => {
                self.view.send_modify(|view| view.phase = Phase::Running);
                if result.is_ok() {
                    self.journal.write(LogLevel::Info, "snapshot taken");
                    let view = self.view.borrow().clone();
                    events::record(&self.shared.store, &view, Happened::Checkpointed).await;
                }
                result.map(|_| Outcome::Done)
            }
            (Transition::Stop, result) => {
                self.slot = None;
                self.enter(Phase::Gone, None);
                self.journal.write(LogLevel::Info, &format!("sandbox ended, reason: {}", self.ending.text()));
                result.map(|_| Outcome::Done)
            }
            (transition, Err(error)) => {
                self.failed_to(transition, &error);
                Err(error)
            }
        }
    }

    async fn paused(&mut self, keep: Keep) -> Result<Outcome> {
        let session = self.view.borrow().session;
        // Shown as the end of a paused sandbox.
        self.view.send_modify(|view| view.session.end_at = view.session.end_at.min(clock::now()));
        let stored = match keep {
            Keep::Memory => self.store(StoredState::Paused(keep), Some(Happened::Paused)).await,
            // Before the first process was ended.
            Keep::Files => Ok(()),
        };
        crash::point("pause.recorded");
        if let (Err(error), Keep::Memory, Some(handle)) = (&stored, keep, &self.handle)
            && handle.resume().await.is_ok()
        {
            // A server that comes after this one would let it run: so does this one. Else who asks again would hear that it
            // is paused already.
            self.view.send_modify(|view| view.session = session);
            self.failed_to(Transition::Pause(keep), error);
            return stored.map(|()| Outcome::Done);
        }
        self.slot = None;
        let stored = match stored {
            // A pause is to outlive the host.
            Ok(()) => self.shared.store.flush().await,
            failed => failed,
        };
        self.enter(Phase::Paused(keep), None);
        self.journal.write(
            LogLevel::Info,
            match keep {
                Keep::Memory => "sandbox paused",
                Keep::Files => "sandbox paused, only its files are kept",
            },
        );
        if let Some(handle) = self.handle.clone() {
            // It may take a while, and nobody has to wait for it.
            tokio::spawn(give_back_memory(handle, self.journal.clone()));
        }
        stored.map(|()| Outcome::Done)
    }

    async fn resumed(&mut self, timeout: Duration, auto_pause: Option<bool>) -> Result<Outcome> {
        let session = Session::begin(clock::now(), timeout, self.team.max_session);
        self.view.send_modify(|view| {
            view.session = session;
            if let Some(pauses) = auto_pause {
                let on_expiry = view.settings.on_expiry.overridden(pauses);
                view.settings = Arc::new(Settings { on_expiry, ..(*view.settings).clone() });
            }
        });
        let stored = self.store(StoredState::Running, Some(Happened::Resumed)).await;
        crash::point("resume.recorded");
        let live = self.new_live();
        self.enter(Phase::Running, live);
        self.journal.write(LogLevel::Info, "sandbox resumed");
        stored.map(|()| Outcome::Resumed)
    }

    fn failed_to(&mut self, transition: Transition, error: &Error) {
        self.not_before = Some(Instant::now() + RETRY);
        let action = match transition {
            Transition::Pause(_) => "pause",
            Transition::Resume(_) => "resume",
            Transition::Snapshot | Transition::Stop => "change",
        };
        self.journal.write(LogLevel::Error, &format!("failed to {action} sandbox"));
        // Without a row that says so, nothing was ended.
        let unwritten = matches!(error, Error::Store(_) | Error::StoreFull(_));
        let phase = match transition {
            Transition::Pause(Keep::Files) if unwritten && self.slot.is_some() => Phase::Running,
            Transition::Resume(Keep::Files) if unwritten && self.handle.is_some() => {
                Phase::Paused(Keep::Memory)
            }
            _ => transition.failed(),
        };
        let live = if phase == Phase::Running { self.new_live() } else { None };
        if live.is_none() {
            self.slot = None;
        }
        self.enter(phase, live);
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

    async fn apply(&mut self, request: Request) -> Result<Outcome> {
        let now = clock::now();
        let longest = self.team.max_session;
        let mut session = self.view.borrow().session;
        match request {
            Request::Connect { timeout, .. } => session
                .try_extend(now, timeout, longest)
                .map_err(|_| Error::Refused("Max instance length exceeded".into()))?,
            Request::SetTimeout(timeout) => session.set_end(now, timeout, longest),
            Request::Refresh(duration) => session.extend(now, duration.max(LEAST_REFRESH), longest),
            Request::SetNetwork(update) => return self.set_network(*update).await,
            Request::Wake
            | Request::Pause(_)
            | Request::Resume { .. }
            | Request::Kill(_)
            | Request::Snapshot(_)
            | Request::Fork(_) => return Ok(Outcome::WasRunning),
        }
        let moved = session.end_at != self.view.borrow().session.end_at;
        self.view.send_modify(|view| view.session = session);
        self.store(StoredState::Running, moved.then_some(Happened::TimeoutSet(session.end_at))).await?;
        Ok(Outcome::WasRunning)
    }

    async fn set_network(&mut self, update: NetworkUpdate) -> Result<Outcome> {
        let settings = self.view.borrow().settings.clone();
        let network = settings.network.replaced(update)?;
        let Some(handle) = &self.handle else {
            return Err(Error::Internal("a running sandbox has no processes"));
        };
        handle.set_network(network.policy()).await.map_err(|source| Error::Backend {
            action: "change the network of",
            id: self.view.borrow().details.id.clone(),
            source,
        })?;
        self.view.send_modify(|view| view.settings = Arc::new(Settings { network, ..(*settings).clone() }));
        self.store(StoredState::Running, Some(Happened::NetworkSet)).await?;
        Ok(Outcome::Done)
    }

    /// Writes down what is so now, and what happened, for those who want to know.
    async fn store(&mut self, state: StoredState, happened: Option<Happened>) -> Result<()> {
        let view = self.view.borrow().clone();
        let event = happened.map(|happened| describe(&view, &happened));
        let View { details, session, settings, .. } = &view;
        self.shared.store.update_sandbox(&details.id, state, session, settings, event.as_ref()).await
    }

    fn enter(&self, phase: Phase, live: Option<Arc<Live>>) {
        self.view.send_modify(|view| {
            view.phase = phase;
            view.live = live;
        });
    }

    fn new_live(&self) -> Option<Arc<Live>> {
        self.handle.clone().map(|handle| Arc::new(Live::new(handle)))
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

impl From<InvalidNetwork> for Error {
    fn from(invalid: InvalidNetwork) -> Self {
        match invalid {
            InvalidNetwork::EgressProxyOff => Self::FeatureOff("egress proxy is not enabled on this server"),
            other => Self::Refused(other.to_string()),
        }
    }
}

async fn give_back_memory(handle: Handle, journal: Arc<Journal>) {
    match handle.reclaim().await {
        Ok(bytes) if bytes >> 20 == 0 => {}
        Ok(bytes) => journal.write(LogLevel::Info, &format!("{} MiB of memory given back", bytes >> 20)),
        Err(err) => tracing::debug!(sandbox_id = %handle.id(), error = ?err, "no memory was given back"),
    }
}
