//! Transitions of a driver: how they begin, and how their outcome is published.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use sandcove_host::Handle;
use sandcove_isolate::crash;
use sandcove_wire::api::observe::LogLevel;
use tokio::sync::watch;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use super::{Driver, LastOutcome};
use crate::domain::event::LifecycleEvent;
use crate::domain::frozen::Frozen;
use crate::domain::lifecycle::{Command, Keep, Phase, Session, SnapshotOrder, Transition};
use crate::domain::sandbox::{Settings, StoredState};
use crate::sandboxes::command::{Outcome, QueuedCommand, Reply, answer, answer_all};
use crate::sandboxes::live_session::LiveSession;
use crate::sandboxes::log::SandboxLog;
use crate::sandboxes::memory;
use crate::sandboxes::transition::{Notes, TransitionContext, TransitionFuture};
use crate::sandboxes::view::View;
use crate::{Error, Result, clock, otlp};

/// Pause after a failed transition before an expired session is acted upon again: a cause such as a full disk lasts a while.
const RETRY: Duration = Duration::from_secs(2);
/// Maximum time that a sandbox which has to be parked waits for others of its team. Pauses of other teams may wait for it meanwhile.
const MAX_PARK_WAIT: Duration = Duration::from_secs(15);
/// Minimum session that begins when traffic resumes a sandbox.
const MIN_WAKE_SESSION: Duration = Duration::from_secs(300);

/// The transition in flight.
pub(super) struct InFlight {
    transition: Transition,
    pub(super) future: TransitionFuture,
    /// The callers that get the outcome.
    pub(super) joined: Vec<Reply>,
    /// Length of the session that a resume begins.
    timeout: Duration,
    /// The change of the expiry policy by a resume.
    auto_pause: Option<bool>,
    pub(super) notes: Arc<Notes>,
    span: Span,
}

impl Driver {
    /// Begins the transition that a command asks for.
    pub(super) fn begin_for(&mut self, transition: Transition, queued: QueuedCommand) {
        let (timeout, auto_pause) = match queued.command {
            Command::Resume { timeout, auto_pause, .. } => (timeout, auto_pause),
            Command::Connect { timeout, .. } => (timeout, None),
            Command::Wake => (self.wake_timeout(), None),
            _ => Default::default(),
        };
        if transition == Transition::Resume(Keep::Memory) && self.view.borrow().settings.unresponsive {
            let id = self.view.borrow().details.id.clone();
            return answer(queued.reply, Err(Error::PausedUnresponsive(id)));
        }
        if matches!(transition, Transition::Resume(_)) {
            match self.shared.admission.take(self.team.id, self.team.max_sandboxes) {
                Ok(permit) => self.permit = Some(permit),
                Err(error) => return answer(queued.reply, Err(error)),
            }
        }
        match queued.command {
            Command::Pause(_) => {
                match self.shared.admission.reserve_pause(self.team.id, self.team.quota.paused) {
                    Ok(permit) => self.paused_permit = Some(permit),
                    Err(error) => return answer(queued.reply, Err(error)),
                }
            }
            Command::Demote => self.set_demoted(true),
            _ => {}
        }
        let order = match queued.command {
            Command::Snapshot(order) | Command::Fork(order) => Some(order),
            Command::Kill(reason) => {
                self.kill_reason = reason;
                None
            }
            _ => None,
        };
        self.begin(transition, order, &queued.span);
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.joined.push(queued.reply);
            in_flight.timeout = timeout;
            in_flight.auto_pause = auto_pause;
        }
    }

    /// Length of the session that begins when traffic resumes the sandbox.
    pub(super) fn wake_timeout(&self) -> Duration {
        self.view.borrow().details.timeout.max(MIN_WAKE_SESSION)
    }

    /// Begins a transition. `order` is that of a snapshot; `cause` is the span of the command.
    pub(super) fn begin(&mut self, transition: Transition, order: Option<SnapshotOrder>, cause: &Span) {
        if matches!(transition, Transition::Pause(_)) && self.paused_permit.is_none() {
            self.paused_permit = Some(self.shared.admission.adopt_pause(self.team.id));
        }
        let notes = Arc::<Notes>::default();
        let context = TransitionContext {
            shared: self.shared.clone(),
            view: self.view.borrow().clone(),
            handle: self.handle.clone(),
            notes: notes.clone(),
        };
        let future = match transition {
            Transition::Pause(keep) => context.pause(keep),
            Transition::Park => {
                let max_wait = if self.turn.is_some() { Duration::ZERO } else { MAX_PARK_WAIT };
                context.park(self.too_few, max_wait)
            }
            Transition::Resume(from) => context.resume(from),
            Transition::Snapshot => match order {
                Some(order) => context.snapshot(order, self.team.account()),
                None => ready(Err(Error::Internal("a snapshot without a name"))).boxed(),
            },
            Transition::Stop => context.stop(self.kill_reason),
        };
        let span = self.span(transition, cause);
        self.in_flight = Some(InFlight {
            transition,
            future: future.instrument(span.clone()).boxed(),
            joined: Vec::new(),
            timeout: Duration::ZERO,
            auto_pause: None,
            notes,
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
            Transition::Park => {
                info_span!(parent: cause, "park", team_id = %team, sandbox_id = %id, otel.status_code = Empty)
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

    /// Publishes the outcome of the transition in flight, and decides about the commands that waited for it.
    pub(super) async fn finish(&mut self, result: Result<Option<Handle>>) {
        let Some(InFlight { transition, joined, timeout, auto_pause, notes, span, .. }) =
            self.in_flight.take()
        else {
            return;
        };
        self.turn = None;
        if let Some(reason) = notes.lost_memory.get() {
            self.memory_lost(reason).await;
        }
        let concluding = self.conclude(transition, result, timeout, auto_pause, &notes);
        let outcome = concluding.instrument(span.clone()).await;
        if outcome.is_err() {
            otlp::failed(&span);
        }
        otlp::end(&span);
        let last = |outcome: &Outcome| LastOutcome { transition, outcome: *outcome, sent_at: Instant::now() };
        if transition != Transition::Park {
            self.last_outcome = outcome.as_ref().ok().map(last);
        }
        // Nobody asked for what is done in the background, and its outcome is in the log already.
        if transition != Transition::Park || !joined.is_empty() {
            answer_all(joined, outcome);
        }
        let may_park = self.shared.parking.is_possible && !self.cannot_be_parked && self.too_few.is_none();
        if self.has_no_room && may_park {
            // To disk, and only if that is not possible, away.
            self.begin(Transition::Park, None, &Span::none());
        } else if std::mem::take(&mut self.has_no_room) {
            self.set_demoted(true);
            self.shared.telemetry.sandbox_demoted();
            self.begin(Transition::Pause(Keep::Files), None, &Span::none());
        }
        for queued in std::mem::take(&mut self.waiting) {
            self.receive(queued).await;
        }
    }

    /// Stores and shows what the transition has led to.
    async fn conclude(
        &mut self,
        transition: Transition,
        result: Result<Option<Handle>>,
        timeout: Duration,
        auto_pause: Option<bool>,
        notes: &Notes,
    ) -> Result<Outcome> {
        match (transition, result) {
            (Transition::Pause(keep), Ok(handle)) => {
                self.handle = handle;
                let unresponsive = notes.unresponsive.load(Ordering::Relaxed);
                self.view.send_modify(|view| {
                    view.settings = Arc::new(Settings { unresponsive, ..(*view.settings).clone() });
                });
                self.paused(keep).await
            }
            (Transition::Park, Ok(None)) => Ok(self.parked().await),
            // Given up for a command that waits, or for the end of the server.
            (Transition::Park, Ok(Some(_))) => {
                self.has_no_room = false;
                self.permit = None;
                self.enter(Phase::Paused(Keep::Memory), None);
                Err(Error::InTransition(self.view.borrow().details.id.clone()))
            }
            (Transition::Park, Err(error)) => {
                self.not_parked(&error, notes.too_few.get().copied());
                Err(error)
            }
            (Transition::Resume(_), Ok(handle)) => {
                self.handle = handle;
                self.resumed(timeout, auto_pause).await
            }
            (Transition::Snapshot, result) => {
                self.view.send_modify(|view| view.phase = Phase::Running);
                match result {
                    Ok(_) => Ok(self.snapshot_taken(notes.snapshot_memory.get()).await),
                    Err(error) => Err(error),
                }
            }
            (Transition::Stop, result) => {
                self.permit = None;
                self.release_parked();
                self.enter(Phase::Gone, None);
                self.log
                    .write(LogLevel::Info, &format!("sandbox ended, reason: {}", self.kill_reason.text()));
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
        // While the row is written.
        let measuring = tokio::spawn(used_memory(self.handle.clone()));
        // Clients see this as the end of a paused sandbox.
        self.view.send_modify(|view| view.session.end_at = view.session.end_at.min(clock::now()));
        let stored = match keep {
            Keep::Memory => self.store(StoredState::Paused(keep), Some(LifecycleEvent::Paused)).await,
            // The row was written before the first process was ended.
            Keep::Files => Ok(()),
        };
        crash::point("pause.recorded");
        if let (Err(error), Keep::Memory, Some(handle)) = (&stored, keep, &self.handle)
            && handle.resume().await.is_ok()
        {
            // A restarted server would let the sandbox run, so this one does too. Otherwise a second attempt would be
            // refused because the sandbox is paused already.
            self.view.send_modify(|view| view.session = session);
            self.failed_to(Transition::Pause(keep), error);
            return stored.map(|()| Outcome::Done);
        }
        let stored = match stored {
            Ok(()) => {
                let shared = self.shared.clone();
                // A pause has to survive a crash of the host.
                tokio::join!(shared.store.flush(), self.refresh_team()).0
            }
            failed => failed,
        };
        self.log.write(
            LogLevel::Info,
            match keep {
                Keep::Memory if self.view.borrow().settings.unresponsive => {
                    "sandbox paused, its agent did not answer: it is resumed from its files only"
                }
                Keep::Memory => "sandbox paused",
                Keep::Files if self.view.borrow().settings.demoted => {
                    "memory of the paused sandbox released, its files are kept: the limit on memory of paused sandboxes was reached"
                }
                Keep::Files => "sandbox paused, only its files are kept",
            },
        );
        match keep {
            Keep::Memory => {
                let bytes = measuring.await.ok().flatten();
                self.enter_frozen(bytes).await;
            }
            Keep::Files => {
                self.permit = None;
                self.enter(Phase::Paused(Keep::Files), None);
            }
        }
        if let Some(handle) = self.handle.clone() {
            // Reclaiming may take a while, and no caller has to wait for it.
            tokio::spawn(reclaim_memory(handle, self.log.clone(), self.view.clone()));
        }
        stored.map(|()| Outcome::Done)
    }

    /// Enters the pause with memory on disk, whose row is written.
    async fn parked(&mut self) -> Outcome {
        self.handle = None;
        let id = self.view.borrow().details.id.clone();
        let bytes = self.shared.host.stored_memory(&id).await.ok().flatten().unwrap_or_default();
        self.set_parked(Some(bytes));
        self.view.send_modify(|view| view.memory = 0);
        (self.permit, self.has_no_room) = (None, false);
        self.enter(Phase::Paused(Keep::Memory), None);
        self.shared.telemetry.sandbox_parked();
        let text = format!("memory of the paused sandbox stored on disk, {} MiB", bytes.div_ceil(1 << 20));
        self.log.write(LogLevel::Info, &text);
        Outcome::Done
    }

    /// Leaves the sandbox frozen, with all that it has. When its team has `too_few` bytes left on disk, it is parked when there are more.
    fn not_parked(&mut self, error: &Error, too_few: Option<u64>) {
        match too_few {
            Some(bytes) => self.too_few = Some(bytes),
            None => self.cannot_be_parked = true,
        }
        self.enter(Phase::Paused(Keep::Memory), None);
        self.shared.telemetry.sandbox_not_parked();
        let reason = match error {
            Error::NotParked(_, reason) => reason.clone(),
            error => error.to_string(),
        };
        let id = &self.view.borrow().details.id;
        tracing::info!(sandbox_id = %id, %reason, "memory of a paused sandbox is not stored on disk");
        let text =
            format!("memory of the paused sandbox cannot be stored on disk, and stays in memory: {reason}");
        self.log.write(LogLevel::Warn, &text);
    }

    /// Shows that only the files of a parked sandbox are left. The row says so already.
    async fn memory_lost(&mut self, reason: &str) {
        self.set_parked(None);
        let id = self.view.borrow().details.id.clone();
        if let Ok(None) = self.shared.host.stored_memory(&id).await {
            self.release_parked();
        }
        self.set_demoted(true);
        self.enter(Phase::Paused(Keep::Files), None);
        let text = format!("memory of the paused sandbox cannot be restored, its files are kept: {reason}");
        self.log.write(LogLevel::Error, &text);
    }

    /// Stops counting the memory of the sandbox on disk, which is gone.
    fn release_parked(&self) {
        self.shared.parked.released(self.team.id, &self.view.borrow().details.id);
    }

    fn set_parked(&self, parked: Option<u64>) {
        self.view.send_modify(|view| {
            view.settings = Arc::new(Settings { parked, ..(*view.settings).clone() });
        });
    }

    /// Enters the pause that keeps memory. The sandbox stops counting as running when its memory has room among that of the
    /// other paused ones; without room it is the next to lose it. `bytes` is its memory, if that is known.
    async fn enter_frozen(&mut self, bytes: Option<u64>) {
        let shared = self.shared.clone();
        let (id, quota) = (self.view.borrow().details.id.clone(), self.team.quota);
        let mut newcomer = self.frozen(bytes);
        if !memory::has_room(&shared, &id, newcomer, &quota)
            && let Some(handle) = self.handle.clone()
        {
            // Cached files may be most of it.
            let _ = handle.reclaim().await;
            let bytes = used_memory(Some(handle)).await;
            newcomer = self.frozen(bytes);
        }
        let room = memory::make_room(&shared, &id, newcomer, &quota).await;
        self.view.send_modify(|view| view.memory = newcomer.bytes);
        self.enter(Phase::Paused(Keep::Memory), None);
        match room {
            Some(_reserved) => self.permit = None,
            None => self.has_no_room = true,
        }
    }

    /// The sandbox as one whose processes were frozen just now: all the memory that it may have, when it is not known what it has.
    fn frozen(&self, bytes: Option<u64>) -> Frozen {
        let details = &self.view.borrow().details;
        let bytes = bytes.unwrap_or(details.limits.memory_mib << 20);
        Frozen { team: details.team, bytes, since: clock::now() }
    }

    /// Marks the sandbox as one whose memory the server releases, or not. The row of the next transition has the mark.
    fn set_demoted(&self, demoted: bool) {
        self.view.send_modify(|view| {
            view.settings = Arc::new(Settings { demoted, ..(*view.settings).clone() });
        });
    }

    async fn resumed(&mut self, timeout: Duration, auto_pause: Option<bool>) -> Result<Outcome> {
        if self.view.borrow().settings.parked.is_some() {
            self.shared.telemetry.sandbox_unparked();
        }
        (self.cannot_be_parked, self.too_few) = (false, None);
        self.release_parked();
        let session = Session::begin(clock::now(), timeout, self.team.max_session);
        self.view.send_modify(|view| {
            view.session = session;
            let on_expiry = view.settings.on_expiry;
            let on_expiry = auto_pause.map_or(on_expiry, |pauses| on_expiry.overridden(pauses));
            view.settings = Arc::new(Settings {
                on_expiry,
                demoted: false,
                parked: None,
                unresponsive: false,
                ..(*view.settings).clone()
            });
        });
        let stored = self.store(StoredState::Running, Some(LifecycleEvent::Resumed)).await;
        crash::point("resume.recorded");
        let live = self.new_live();
        self.enter(Phase::Running, live);
        self.log.write(LogLevel::Info, "sandbox resumed");
        stored.map(|()| Outcome::Resumed)
    }

    fn failed_to(&mut self, transition: Transition, error: &Error) {
        self.not_before = Some(Instant::now() + RETRY);
        let action = match transition {
            Transition::Pause(_) => "pause",
            Transition::Resume(_) => "resume",
            Transition::Park | Transition::Snapshot | Transition::Stop => "change",
        };
        self.log.write(LogLevel::Error, &format!("failed to {action} sandbox"));
        // Processes are ended only after the row was written.
        let unwritten = matches!(error, Error::Store(_) | Error::StoreFull(_));
        let was_demoted = self.view.borrow().settings.demoted;
        let phase = match transition {
            Transition::Pause(Keep::Files) if unwritten && was_demoted => {
                self.set_demoted(false);
                Phase::Paused(Keep::Memory)
            }
            Transition::Pause(Keep::Files) if unwritten && self.permit.is_some() => Phase::Running,
            Transition::Resume(Keep::Files) if unwritten && self.handle.is_some() => {
                Phase::Paused(Keep::Memory)
            }
            // Its memory could not be restored, nor could it be started from its files.
            Transition::Resume(Keep::Memory) if self.handle.is_none() && !self.is_parked() => {
                Phase::Paused(Keep::Files)
            }
            _ => transition.failed(),
        };
        let live = if phase == Phase::Running { self.new_live() } else { None };
        if live.is_none() {
            self.permit = None;
        }
        self.enter(phase, live);
    }

    fn is_parked(&self) -> bool {
        self.view.borrow().settings.parked.is_some()
    }

    fn enter(&mut self, phase: Phase, live: Option<Arc<LiveSession>>) {
        if matches!(phase, Phase::Running | Phase::Gone) {
            self.paused_permit = None;
        }
        self.view.send_modify(|view| {
            view.phase = phase;
            if phase != Phase::Paused(Keep::Memory) {
                view.memory = 0;
            }
            view.live = live;
        });
    }

    fn new_live(&self) -> Option<Arc<LiveSession>> {
        self.handle.clone().map(|handle| self.shared.live(handle, self.team.id))
    }
}

/// Memory of the processes of a sandbox, bytes; `None` when it is not known.
async fn used_memory(handle: Option<Handle>) -> Option<u64> {
    match handle {
        Some(handle) => handle.usage().await.ok().map(|usage| usage.memory_bytes),
        None => Some(0),
    }
}

async fn reclaim_memory(handle: Handle, log: Arc<SandboxLog>, view: watch::Sender<View>) {
    let session = view.borrow().session;
    match handle.reclaim().await {
        Ok(bytes) if bytes >> 20 == 0 => {}
        Ok(bytes) => log.write(LogLevel::Info, &format!("{} MiB of memory given back", bytes >> 20)),
        Err(err) => tracing::debug!(sandbox_id = %handle.id(), error = ?err, "failed to reclaim memory"),
    }
    let Ok(usage) = handle.usage().await else { return };
    view.send_if_modified(|view| {
        // In a later pause it has other memory.
        let is_same_pause = view.phase == Phase::Paused(Keep::Memory) && view.session == session;
        if is_same_pause {
            view.memory = usage.memory_bytes;
        }
        is_same_pause
    });
}
