//! The driver of a sandbox: a task that owns its [`Handle`]. Commands come to it as messages and are answered by oneshot,
//! the visible state goes out on a watch channel, and every change is stored before it is answered. Callers that hang up
//! cancel nothing.

mod apply;
mod change;
mod snapshot;

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sandcove_host::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::sleep;
use tracing::Span;

use super::admission::{PausedPermit, Permit};
use super::command::{Outcome, QueuedCommand, answer};
use super::log::SandboxLog;
use super::parked::ToPark;
use super::parking;
use super::samples::Samples;
use super::shared::{Entry, Shared};
use super::view::View;
use crate::domain::event::KillReason;
use crate::domain::lifecycle::{Command, Decision, Denial, Keep, Phase, Transition, after_crash, decide};
use crate::domain::sandbox::{Stored, StoredState};
use crate::domain::team::Team;
use crate::{Error, Result, clock};
use change::InFlight;

/// Commands that may wait for one driver.
const MAILBOX: usize = 64;
/// Maximum time between two looks at the wall clock, so that a jump forward is noticed.
const MAX_SLEEP: Duration = Duration::from_secs(30);

/// The outcome of the last transition that succeeded.
struct LastOutcome {
    transition: Transition,
    outcome: Outcome,
    /// Time at which the outcome was sent.
    sent_at: Instant,
}

impl LastOutcome {
    /// Whether the outcome also answers `queued`: a command for the same transition whose client asked before the outcome was sent, like those
    /// that joined.
    fn answers(&self, queued: &QueuedCommand) -> bool {
        let same = matches!(
            (self.transition, &queued.command),
            (Transition::Pause(_), Command::Pause(_)) | (Transition::Resume(_), Command::Resume { .. })
        );
        same && queued.asked_at < self.sent_at
    }
}

/// The driver of one sandbox.
pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) team: Team,
    /// The sandbox's processes; none after a pause that kept only files.
    pub(super) handle: Option<Handle>,
    pub(super) view: watch::Sender<View>,
    commands: mpsc::Receiver<QueuedCommand>,
    pub(super) log: Arc<SandboxLog>,
    /// Held while the sandbox counts against the team's limit on running ones.
    permit: Option<Permit>,
    /// Held while the sandbox counts against the team's limit on paused ones.
    paused_permit: Option<PausedPermit>,
    /// Whether the sandbox, once it is paused, has to lose its memory.
    has_no_room: bool,
    /// Whether the memory of this pause cannot be stored on disk.
    cannot_be_parked: bool,
    /// Bytes on disk that the team had left, when they were too few for the memory of this pause.
    too_few: Option<u64>,
    in_flight: Option<InFlight>,
    /// Commands that are decided about when the transition in flight has ended.
    waiting: VecDeque<QueuedCommand>,
    last_outcome: Option<LastOutcome>,
    /// The reason of the kill, once the sandbox is being removed.
    kill_reason: KillReason,
    /// After a transition that failed: the earliest time at which an expired session is acted upon again.
    not_before: Option<Instant>,
    /// Held while the sandbox is parked in the background.
    turn: Option<OwnedSemaphorePermit>,
}

enum DriverEvent {
    TransitionEnded(Result<Option<Handle>>),
    Crashed,
    Received(QueuedCommand),
    /// The sandbox has been paused for long enough to be parked.
    ParkDue(OwnedSemaphorePermit),
    ClockTick,
    Detached,
}

impl Driver {
    /// Makes a sandbox known, and returns the driver that is to run it.
    pub(super) fn register(
        shared: &Arc<Shared>,
        stored: Stored,
        team: Team,
        handle: Option<Handle>,
        permit: Option<Permit>,
    ) -> Self {
        let (phase, live) = match stored.state {
            StoredState::Running => {
                (Phase::Running, handle.clone().map(|handle| shared.live(handle, team.id)))
            }
            StoredState::Paused(keep) => (Phase::Paused(keep), None),
        };
        let is_paused = matches!(stored.state, StoredState::Paused(_));
        let paused_permit = is_paused.then(|| shared.admission.adopt_pause(team.id));
        let details = Arc::new(stored.details);
        let (view, watched) = watch::channel(View {
            details: details.clone(),
            settings: Arc::new(stored.settings),
            phase,
            session: stored.session,
            memory: 0,
            live,
        });
        let (sender, commands) = mpsc::channel(MAILBOX);
        let log = Arc::new(SandboxLog::default());
        shared.insert(Entry {
            details,
            log: log.clone(),
            samples: Samples::default(),
            view: watched,
            commands: sender,
            unanswered: AtomicUsize::new(0),
        });
        Self {
            shared: shared.clone(),
            team,
            handle,
            view,
            commands,
            log,
            permit,
            paused_permit,
            has_no_room: false,
            cannot_be_parked: false,
            too_few: None,
            in_flight: None,
            waiting: VecDeque::new(),
            last_outcome: None,
            kill_reason: KillReason::Request,
            not_before: None,
            turn: None,
        }
    }

    /// Runs until the sandbox is gone or the server stops; a stop leaves the sandbox as it is.
    pub(super) async fn run(mut self) {
        while self.phase() != Phase::Gone {
            match self.next_event().await {
                DriverEvent::TransitionEnded(result) => self.finish(result).await,
                DriverEvent::Crashed => self.crashed(),
                DriverEvent::Received(queued) => self.receive(queued).await,
                DriverEvent::ParkDue(turn) => {
                    self.turn = Some(turn);
                    self.begin(Transition::Park, None, &Span::none());
                }
                DriverEvent::ClockTick => self.expire_if_due(clock::now()),
                DriverEvent::Detached => return,
            }
        }
        self.shared.remove(&self.view.borrow().details.id);
    }

    async fn next_event(&mut self) -> DriverEvent {
        let phase = self.phase();
        let pause = self.time_to_expiry(clock::now());
        let idle = self.in_flight.is_none();
        let crashed = async {
            match &self.handle {
                Some(handle) if after_crash(phase).is_some() => handle.wait().await,
                _ => pending().await,
            }
        };
        let (details, paused_at) = {
            let view = self.view.borrow();
            (view.details.clone(), view.session.end_at)
        };
        let (shared, too_few) = (&self.shared, self.too_few);
        let may_park = idle
            && !self.cannot_be_parked
            && phase == Phase::Paused(Keep::Memory)
            && parking::is_frozen(&self.view.borrow());
        let park_due = async {
            let max_bytes = details.limits.max_stored_bytes();
            let sandbox = ToPark { team: details.team, id: &details.id, max_bytes, too_few };
            loop {
                shared.parked.room(&sandbox).await;
                let turn = shared.parking.turn(paused_at).await;
                // Others may have been parked before it was this one's turn.
                if shared.parked.may_have(&sandbox) {
                    break turn;
                }
            }
        };
        let ended = async {
            match &mut self.in_flight {
                Some(in_flight) => (&mut in_flight.future).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            result = ended => DriverEvent::TransitionEnded(result),
            _ = crashed => DriverEvent::Crashed,
            queued = self.commands.recv() => queued.map_or(DriverEvent::Detached, DriverEvent::Received),
            turn = park_due, if may_park => DriverEvent::ParkDue(turn),
            () = sleep(pause), if phase == Phase::Running => DriverEvent::ClockTick,
            () = self.shared.stopping.cancelled(), if idle => DriverEvent::Detached,
        }
    }

    /// Whether traffic resumes the sandbox although only its files are kept: it was paused with memory, which the server has
    /// released.
    fn wakes_from_files(&self) -> bool {
        let view = self.view.borrow();
        view.phase == Phase::Paused(Keep::Files) && view.settings.demoted
    }

    /// Reads the limits of the team again, which an operator may have changed.
    async fn refresh_team(&mut self) {
        match self.shared.store.team(self.team.id).await {
            Ok(Some(team)) => self.team = team,
            Ok(None) => {}
            Err(err) => {
                tracing::warn!(team_id = %self.team.id, error = ?err, "the limits of a team were not read");
            }
        }
    }

    fn phase(&self) -> Phase {
        self.view.borrow().phase
    }

    /// Time until the session has to be looked at again.
    fn time_to_expiry(&self, now: Timestamp) -> Duration {
        let left =
            Duration::try_from(now.duration_until(self.view.borrow().session.end_at)).unwrap_or_default();
        let barred = self.not_before.map(|time| time.saturating_duration_since(Instant::now()));
        left.max(barred.unwrap_or_default()).min(MAX_SLEEP)
    }

    async fn receive(&mut self, mut queued: QueuedCommand) {
        if matches!(queued.command, Command::Wake) && self.wakes_from_files() {
            queued.command = Command::Connect { from: Keep::Files, timeout: self.wake_timeout() };
        }
        if matches!(queued.command, Command::Pause(_)) {
            self.refresh_team().await;
        }
        if matches!(queued.command, Command::Park)
            && let Some(result) = self.parked_already()
        {
            return answer(queued.reply, result);
        }
        match decide(self.phase(), &queued.command) {
            Decision::Begin(transition) => self.begin_for(transition, queued),
            Decision::Join => match &mut self.in_flight {
                Some(in_flight) => in_flight.joined.push(queued.reply),
                None => answer(queued.reply, Err(Error::Internal("nothing to join"))),
            },
            Decision::Wait => {
                if let Some(in_flight) = &self.in_flight {
                    in_flight.notes.is_waited_for.cancel();
                }
                self.waiting.push_back(queued);
            }
            Decision::Apply => {
                let result = self.apply(queued.command).await;
                answer(queued.reply, result);
            }
            Decision::Deny(denial) => {
                let result = match &self.last_outcome {
                    Some(last) if last.answers(&queued) => Ok(last.outcome),
                    _ => Err(self.denied(denial)),
                };
                answer(queued.reply, result);
            }
        }
    }

    /// The answer to a command to park that takes no transition.
    fn parked_already(&self) -> Option<Result<Outcome>> {
        let view = self.view.borrow();
        let reason = match view.phase {
            Phase::Paused(Keep::Memory) if view.settings.parked.is_some() => return Some(Ok(Outcome::Done)),
            Phase::Paused(Keep::Memory) if !self.shared.parking.is_possible => {
                "this host has no CRIU, which `make up` fetches"
            }
            Phase::Paused(Keep::Files) => "only its files are kept",
            Phase::Running => "it runs; pause it first",
            _ => return None,
        };
        Some(Err(Error::NotParked(view.details.id.clone(), reason.into())))
    }

    fn crashed(&mut self) {
        if self.in_flight.as_ref().is_some_and(|change| change.notes.lost_memory.get().is_some()) {
            // The resume knows, and starts the sandbox from its files.
            self.handle = None;
            return;
        }
        let Some(transition) = after_crash(self.phase()) else { return };
        let id = self.view.borrow().details.id.clone();
        tracing::warn!(sandbox_id = %id, "sandbox ended by itself");
        if let Some(interrupted) = self.in_flight.take() {
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
        self.kill_reason = KillReason::Unknown;
        self.begin(transition, None, &Span::none());
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
            self.kill_reason = KillReason::Timeout;
            self.begin(transition, None, &Span::none());
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
