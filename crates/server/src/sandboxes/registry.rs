//! All sandboxes of this server, by id.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use futures_util::{StreamExt, stream};
use sandcove_isolate::{Backend, Handle};
use sandcove_wire::id::SandboxId;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span};
use uuid::Uuid;

use super::admission::{Admission, Capacity, Slot};
use super::create::{self, CreatePlan};
use super::departed::Departed;
use super::driver::Driver;
use super::journal::Journal;
use super::lifecycle::Phase;
use super::live::Live;
use super::observed::Storing;
use super::record::{Details, Stored, StoredState, View};
use super::request::{Command, Outcome, Request};
use super::series::Series;
use super::{health, observed, recover};
use crate::events::KillReason;
use crate::store::{Begun, Store};
use crate::teams::Team;
use crate::telemetry::Telemetry;
use crate::{Error, Result};

/// Requests that may wait for one driver.
const MAILBOX: usize = 64;
/// Sandboxes that are killed at once.
const KILLERS: usize = 16;

/// All sandboxes; clones share them.
#[derive(Clone)]
pub struct Registry {
    pub(super) shared: Arc<Shared>,
    tracker: TaskTracker,
}

/// What drivers share.
pub(super) struct Shared {
    pub(super) backend: Backend,
    pub(super) store: Store,
    pub(super) admission: Admission,
    pub(super) telemetry: Arc<Telemetry>,
    /// Cancelled when the server stops.
    pub(super) stopping: CancellationToken,
    entries: RwLock<HashMap<SandboxId, Arc<Entry>>>,
    pub(super) departed: Departed<Entry>,
    /// Idempotent creates under way, by team and key.
    creating: Mutex<HashSet<(Uuid, String)>>,
}

/// One sandbox, as everything but its driver sees it.
pub(crate) struct Entry {
    pub(crate) details: Arc<Details>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) series: Series,
    view: watch::Receiver<View>,
    commands: mpsc::Sender<Command>,
}

impl Entry {
    /// The sandbox now.
    pub(crate) fn view(&self) -> View {
        self.view.borrow().clone()
    }

    /// An error when it runs and its agent does not answer.
    pub(crate) async fn require_healthy(&self) -> Result<()> {
        match self.view().live {
            Some(live) if !health::agent_answers(&live).await => {
                Err(Error::AgentUnresponsive(self.details.id.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Asks and waits for the answer.
    pub(crate) async fn ask(&self, request: Request) -> Result<Outcome> {
        let gone = || Error::SandboxNotFound(self.details.id.to_string());
        let (reply, answer) = oneshot::channel();
        let command = Command { request, reply, asked: Instant::now(), span: Span::current() };
        self.commands.send(command).await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Shared {
    pub(super) fn register(
        self: &Arc<Self>,
        stored: Stored,
        team: Team,
        handle: Option<Handle>,
        slot: Option<Slot>,
    ) -> Driver {
        let (phase, live) = match stored.state {
            StoredState::Running => {
                (Phase::Running, handle.clone().map(|handle| Arc::new(Live::new(handle))))
            }
            StoredState::Paused(keep) => (Phase::Paused(keep), None),
        };
        let details = Arc::new(stored.details);
        let (view, watched) = watch::channel(View {
            details: details.clone(),
            settings: Arc::new(stored.settings),
            phase,
            session: stored.session,
            live,
        });
        let (sender, commands) = mpsc::channel(MAILBOX);
        let journal = Arc::new(Journal::default());
        let entry = Entry {
            details: details.clone(),
            journal: journal.clone(),
            series: Series::default(),
            view: watched,
            commands: sender,
        };
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.insert(details.id.clone(), Arc::new(entry));
        drop(entries);
        Driver::new(self.clone(), team, handle, view, commands, journal, slot)
    }

    pub(super) fn forget(&self, id: &SandboxId) {
        let entry = self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(entry) = entry {
            self.departed.add(entry);
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

impl Registry {
    /// Finds the sandboxes of an earlier run again and sweeps what belongs to none.
    pub(crate) async fn start(
        backend: Backend,
        store: Store,
        capacity: Capacity,
        telemetry: Arc<Telemetry>,
    ) -> Result<Self> {
        let shared = Shared {
            backend,
            store,
            admission: Admission::new(capacity),
            telemetry,
            stopping: CancellationToken::new(),
            entries: RwLock::default(),
            departed: Departed::default(),
            creating: Mutex::default(),
        };
        let registry = Self { shared: Arc::new(shared), tracker: TaskTracker::new() };
        recover::recover(&registry).await?;
        registry.tracker.spawn(observed::watch(registry.shared.clone()));
        Ok(registry)
    }

    /// Runs `task` until the server stops.
    pub(crate) fn spawn_until_stop(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stopping = self.shared.stopping.clone();
        self.tracker.spawn(async move { stopping.run_until_cancelled_owned(task).await });
    }

    pub(super) fn spawn(&self, driver: Driver) {
        self.tracker.spawn(driver.run());
    }

    /// Makes a sandbox. It is made to the end even if the caller stops waiting.
    pub async fn create(&self, plan: CreatePlan) -> Result<View> {
        self.create_then(plan, None).await
    }

    /// As [`Registry::create`], but a second request with the same key gets the sandbox of the first.
    /// `fingerprint` tells requests apart.
    pub async fn create_once(&self, plan: CreatePlan, key: String, fingerprint: &str) -> Result<View> {
        let team = plan.team.id;
        let claim = (team, key.clone());
        match self.shared.store.begin_idempotent(team, &key, fingerprint).await? {
            Begun::First => {
                self.shared.creating.lock().unwrap_or_else(PoisonError::into_inner).insert(claim);
                self.create_then(plan, Some(key)).await
            }
            Begun::Made(id) => self.view(&plan.team, &id).map_err(|_| Error::IdempotencyOutcomeUnknown),
            Begun::OtherRequest => Err(Error::IdempotencyMismatch),
            Begun::Unfinished => {
                let creating = self.shared.creating.lock().unwrap_or_else(PoisonError::into_inner);
                if creating.contains(&claim) {
                    Err(Error::IdempotencyInProgress)
                } else {
                    Err(Error::IdempotencyOutcomeUnknown)
                }
            }
        }
    }

    async fn create_then(&self, plan: CreatePlan, key: Option<String>) -> Result<View> {
        if self.shared.stopping.is_cancelled() {
            return Err(Error::ShuttingDown);
        }
        let (reply, answer) = oneshot::channel();
        let shared = self.shared.clone();
        let request = Span::current();
        self.tracker.spawn(async move {
            let team = plan.team.id;
            let template = plan.build.template_id.clone();
            let made = create::create(&shared, plan).instrument(request).await;
            if let Some(key) = key {
                let id = made.as_ref().ok().map(|driver| driver.view.borrow().details.id.clone());
                note_idempotent(&shared, team, key, id).await;
            }
            match made {
                Ok(driver) => {
                    let view = driver.view.borrow().clone();
                    let _ = reply.send(Ok(view));
                    if let Err(err) = shared.store.count_spawn(&template).await {
                        tracing::warn!(error = ?err, "a new sandbox was not counted for its template");
                    }
                    driver.run().await;
                }
                Err(error) => {
                    let _ = reply.send(Err(error));
                }
            }
        });
        answer.await.unwrap_or(Err(Error::Internal("the task that made a sandbox ended early")))
    }

    /// Does `work` to its end, whether its caller waits or not; a stopping server waits for it.
    pub(super) async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        if self.shared.stopping.is_cancelled() {
            return Err(Error::ShuttingDown);
        }
        self.tracker
            .spawn(work.in_current_span())
            .await
            .unwrap_or(Err(Error::Internal("the task that did the work ended early")))
    }

    /// The team's sandbox `id`; somebody else's is not found.
    pub(crate) fn entry(&self, team: &Team, id: &SandboxId) -> Result<Arc<Entry>> {
        self.find(id)
            .filter(|entry| entry.details.team == team.id)
            .ok_or_else(|| Error::SandboxNotFound(id.to_string()))
    }

    /// The team's sandbox `id`, if callers may see it.
    pub fn view(&self, team: &Team, id: &SandboxId) -> Result<View> {
        let view = self.entry(team, id)?.view();
        if view.is_visible() { Ok(view) } else { Err(Error::SandboxNotFound(id.to_string())) }
    }

    /// Asks the team's sandbox `id` for something.
    pub(crate) async fn ask(&self, team: &Team, id: &SandboxId, request: Request) -> Result<Outcome> {
        self.entry(team, id)?.ask(request).await
    }

    /// Every sandbox of the team that callers may see.
    pub fn views(&self, team: &Team) -> Vec<View> {
        let entries = self.shared.all();
        let own = entries.iter().filter(|entry| entry.details.team == team.id);
        own.map(|entry| entry.view()).filter(View::is_visible).collect()
    }

    /// Any team's sandbox `id`: for traffic, which shows its rights by other means.
    pub(crate) fn find(&self, id: &SandboxId) -> Option<Arc<Entry>> {
        self.shared.entries.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Any team's sandbox that `matches`.
    pub(crate) fn find_by(&self, matches: impl Fn(&Details) -> bool) -> Option<Arc<Entry>> {
        self.shared.all().into_iter().find(|entry| matches(&entry.details))
    }

    /// Every sandbox of every team that is there.
    pub(crate) fn all_views(&self) -> Vec<View> {
        self.shared.all().iter().map(|entry| entry.view()).filter(View::is_visible).collect()
    }

    /// Who may start sandboxes.
    pub(crate) fn admission(&self) -> &Admission {
        &self.shared.admission
    }

    /// Removes every sandbox of every team, as an operator.
    pub async fn kill_all(&self) {
        self.kill(self.shared.all()).await;
    }

    /// Removes every sandbox of a team, as an operator; how many are gone, and how many are not.
    pub(crate) async fn kill_of(&self, team: Uuid) -> (u32, u32) {
        let mut entries = self.shared.all();
        entries.retain(|entry| entry.details.team == team);
        self.kill(entries).await
    }

    async fn kill(&self, entries: Vec<Arc<Entry>>) -> (u32, u32) {
        let outcomes = stream::iter(entries).map(|entry| async move {
            match entry.ask(Request::Kill(KillReason::Admin)).await {
                Ok(_) => (1, 0),
                // It went by itself.
                Err(Error::SandboxNotFound(_)) => (0, 0),
                Err(err) => {
                    tracing::warn!(sandbox_id = %entry.details.id, error = %err, "sandbox was not killed");
                    (0, 1)
                }
            }
        });
        let outcomes: Vec<(u32, u32)> = outcomes.buffer_unordered(KILLERS).collect().await;
        outcomes.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Cuts the streams of every sandbox; the sandboxes stay as they are.
    pub(crate) fn cut_streams(&self) {
        for entry in self.shared.all() {
            if let Some(live) = entry.view().live {
                live.end();
            }
        }
    }

    /// Lets every driver end; sandboxes stay as they are, and of the host only what they need.
    pub(crate) async fn stop(&self) {
        self.shared.stopping.cancel();
        self.tracker.close();
        self.tracker.wait().await;
        observed::store(&self.shared, 1, &mut Storing::Works).await;
        let report = self.shared.backend.stop().await;
        tracing::debug!(removed = ?report.removed, failed = ?report.failed, "gave back what no sandbox needs");
    }
}

async fn note_idempotent(shared: &Shared, team: Uuid, key: String, made: Option<SandboxId>) {
    let noted = match made {
        Some(id) => shared.store.finish_idempotent(team, &key, &id).await,
        None => shared.store.abandon_idempotent(team, &key).await,
    };
    if let Err(err) = noted {
        tracing::error!(error = ?err, "the outcome of an idempotent request was not stored");
    }
    shared.creating.lock().unwrap_or_else(PoisonError::into_inner).remove(&(team, key));
}
