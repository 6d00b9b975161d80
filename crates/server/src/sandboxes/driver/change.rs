//! Changes of phase: begun, done, and made known.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use sandcove_isolate::{Handle, crash};
use sandcove_wire::api::observe::LogLevel;
use tokio::time::sleep;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use super::{Driver, Told};
use crate::events::Happened;
use crate::sandboxes::journal::Journal;
use crate::sandboxes::lifecycle::{Keep, Phase, Session, Transition};
use crate::sandboxes::live::Live;
use crate::sandboxes::record::{Settings, StoredState};
use crate::sandboxes::request::{Command, Outcome, Reply, Request, answer, answer_all};
use crate::sandboxes::work::{Subject, Work};
use crate::{Error, Result, clock, events, traces};

/// Freezing takes at least this long, so that callers who ask for it at once share its answer: the second of two
/// simultaneous requests would else come when the sandbox is paused already, which is an error.
const SETTLE: Duration = Duration::from_millis(10);
/// How long after a failed change time that is up is acted upon again: what is in the way, such as a full disk, stays a while.
const RETRY: Duration = Duration::from_secs(2);
/// A wake-up by traffic gives at least this much.
const LEAST_WAKE: Duration = Duration::from_secs(300);

/// A change of phase that is being made.
pub(super) struct Underway {
    transition: Transition,
    pub(super) work: Work,
    /// Those who get its outcome.
    pub(super) joined: Vec<Reply>,
    /// The length of the session a resume begins.
    timeout: Duration,
    /// What a resume changes of the expiry policy.
    auto_pause: Option<bool>,
    span: Span,
}

impl Driver {
    pub(super) fn begin_for(&mut self, transition: Transition, command: Command) {
        let (timeout, auto_pause, settle) = match command.request {
            Request::Resume { timeout, auto_pause, .. } => (timeout, auto_pause, SETTLE),
            Request::Connect { timeout, .. } => (timeout, None, Duration::ZERO),
            Request::Wake => (self.view.borrow().details.timeout.max(LEAST_WAKE), None, Duration::ZERO),
            Request::Pause(_) => (Duration::ZERO, None, SETTLE),
            _ => Default::default(),
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
    pub(super) fn begin(&mut self, transition: Transition, settle: Duration, name: String, cause: &Span) {
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
        let work: Work = if settle.is_zero() {
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

    pub(super) async fn finish(&mut self, result: Result<Option<Handle>>) {
        let Some(Underway { transition, joined, timeout, auto_pause, span, .. }) = self.underway.take()
        else {
            return;
        };
        let outcome = self.conclude(transition, result, timeout, auto_pause).instrument(span.clone()).await;
        if outcome.is_err() {
            traces::failed(&span);
        }
        traces::end(&span);
        let told = |outcome: &Outcome| Told { transition, outcome: *outcome, at: Instant::now() };
        self.told = outcome.as_ref().ok().map(told);
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

    fn enter(&self, phase: Phase, live: Option<Arc<Live>>) {
        self.view.send_modify(|view| {
            view.phase = phase;
            view.live = live;
        });
    }

    fn new_live(&self) -> Option<Arc<Live>> {
        self.handle.clone().map(|handle| Arc::new(Live::new(handle)))
    }
}

async fn give_back_memory(handle: Handle, journal: Arc<Journal>) {
    match handle.reclaim().await {
        Ok(bytes) if bytes >> 20 == 0 => {}
        Ok(bytes) => journal.write(LogLevel::Info, &format!("{} MiB of memory given back", bytes >> 20)),
        Err(err) => tracing::debug!(sandbox_id = %handle.id(), error = ?err, "no memory was given back"),
    }
}
