//! All sandboxes of this server, by id.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use futures_util::{StreamExt, stream};
use sandcove_host::Host;
use sandcove_wire::id::{SandboxId, TemplateId};
use tokio_util::task::TaskTracker;
use tracing::Instrument;
use uuid::Uuid;

use super::admission::{Admission, Capacity};
use super::command::Outcome;
use super::create::{self, CreatePlan};
use super::observed::{self, Storing};
use super::parking;
use super::recover;
use super::shared::{Entry, Shared};
use super::view::View;
use crate::domain::event::KillReason;
use crate::domain::header_rules;
use crate::domain::lifecycle::Command;
use crate::domain::sandbox::Details;
use crate::domain::team::Team;
use crate::store::{IdempotencyStatus, Store};
use crate::telemetry::Telemetry;
use crate::{Error, Result};

/// Sandboxes that are killed at once.
const CONCURRENT_KILLS: usize = 16;

/// The sandboxes of this server; clones share them.
#[derive(Clone)]
pub struct Registry {
    pub(super) shared: Arc<Shared>,
    tracker: TaskTracker,
}

impl Registry {
    /// Recovers the sandboxes of an earlier run and sweeps what belongs to none.
    pub(crate) async fn start(
        host: Host,
        store: Store,
        capacity: Capacity,
        telemetry: Arc<Telemetry>,
    ) -> Result<Self> {
        let can_park = host.can_park().await.map_err(Error::Leftovers)?;
        let shared = Arc::new(Shared::new(host, store, capacity, can_park, telemetry));
        let registry = Self { shared, tracker: TaskTracker::new() };
        recover::recover(&registry.shared, &registry.tracker).await?;
        registry.tracker.spawn(observed::watch(registry.shared.clone()));
        Ok(registry)
    }

    /// Runs `task` until the server stops.
    pub(crate) fn spawn_until_stop(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stopping = self.shared.stopping.clone();
        self.tracker.spawn(async move { stopping.run_until_cancelled_owned(task).await });
    }

    /// Creates a sandbox. The creation is finished even if the caller stops waiting.
    pub async fn create(&self, plan: CreatePlan) -> Result<View> {
        let registry = self.clone();
        self.finish(async move { registry.make(plan, None).await }).await
    }

    /// Creates a sandbox like [`Registry::create`], but a second request with the same key gets the sandbox of the first.
    /// The fingerprint distinguishes requests. Only a request that makes a sandbox is planned.
    pub async fn create_once(
        &self,
        team: &Team,
        key: String,
        fingerprint: String,
        plan: impl Future<Output = Result<CreatePlan>> + Send + 'static,
    ) -> Result<View> {
        let (registry, team) = (self.clone(), team.clone());
        // The claim too: nobody else would end it if the client hung up.
        self.finish(async move { registry.make_once(&team, key, &fingerprint, plan).await }).await
    }

    async fn make_once(
        &self,
        team: &Team,
        key: String,
        fingerprint: &str,
        plan: impl Future<Output = Result<CreatePlan>>,
    ) -> Result<View> {
        let claim = (team.id, key.clone());
        match self.shared.store.begin_idempotent(team.id, &key, fingerprint).await? {
            IdempotencyStatus::Claimed => {
                self.shared.creating.lock().unwrap_or_else(PoisonError::into_inner).insert(claim);
                let made = async { self.make(plan.await?, Some(&key)).await }.await;
                end_claim(&self.shared, team.id, key, made.is_ok()).await;
                made
            }
            IdempotencyStatus::Completed(id) => {
                self.view(team, &id).map_err(|_| Error::IdempotencySandboxGone)
            }
            IdempotencyStatus::OtherRequest => Err(Error::IdempotencyMismatch),
            IdempotencyStatus::Unfinished => {
                let creating = self.shared.creating.lock().unwrap_or_else(PoisonError::into_inner);
                if creating.contains(&claim) {
                    Err(Error::IdempotencyInProgress)
                } else {
                    Err(Error::IdempotencyOutcomeUnknown)
                }
            }
        }
    }

    async fn make(&self, plan: CreatePlan, key: Option<&str>) -> Result<View> {
        let shared = self.shared.clone();
        let team = plan.team.id;
        let template = plan.build.template_id.clone();
        let driver = create::create(&shared, plan, key).await?;
        let is_claimed = key.is_some();
        let view = driver.view.borrow().clone();
        self.tracker.spawn(async move {
            if let Err(err) = shared.store.count_spawn(&template).await {
                tracing::warn!(error = ?err, "a new sandbox was not counted for its template");
            }
            if is_claimed && let Err(err) = shared.store.delete_old_keys(team).await {
                tracing::warn!(error = ?err, "old idempotency keys were not deleted");
            }
            driver.run().await;
        });
        Ok(view)
    }

    /// Finishes `work` even if the caller stops waiting, as when its client hangs up; a stopping server waits for the work.
    ///
    /// Creations, snapshots and forks go through this method; transitions run in the driver's task, which no caller can end.
    /// So the server never drops a call of `Host::create`. The host side runs creations in a task of its own all the same:
    /// it promises that to any caller, and does not rely on this one.
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

    /// The team's sandbox `id`; another team's is not found.
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

    /// Sends a command to the team's sandbox `id` and waits for the answer.
    pub(crate) async fn execute(&self, team: &Team, id: &SandboxId, command: Command) -> Result<Outcome> {
        self.entry(team, id)?.execute(command).await
    }

    /// Has running sandboxes of the team use the present value of a secret, or refuse requests that need it when it is gone. Paused
    /// ones do when they resume.
    pub(crate) async fn renew_secret(&self, team: &Team, name: &str) {
        for view in self.views(team) {
            let needed = header_rules::secrets(&view.settings.network.policy().hosts);
            if view.is_paused() || !needed.iter().any(|one| one.eq_ignore_ascii_case(name)) {
                continue;
            }
            match self.execute(team, &view.details.id, Command::SetNetwork(None)).await {
                // It is gone or paused by now.
                Ok(_) => {}
                Err(error) if matches!(error.unshared(), Error::SandboxNotFound(_)) => {}
                Err(error) => {
                    let sandbox_id = &view.details.id;
                    tracing::error!(%sandbox_id, error = &error as &dyn std::error::Error, "a sandbox still has the former value of a secret");
                }
            }
        }
    }

    /// Every sandbox of the team that callers may see.
    pub fn views(&self, team: &Team) -> Vec<View> {
        let entries = self.shared.all();
        let own = entries.iter().filter(|entry| entry.details.team == team.id);
        own.map(|entry| entry.view()).filter(View::is_visible).collect()
    }

    /// The sandbox `id` of any team: for traffic, which is authorized by other means.
    pub(crate) fn find(&self, id: &SandboxId) -> Option<Arc<Entry>> {
        self.shared.get(id)
    }

    /// The sandbox of any team that `matches`.
    pub(crate) fn find_by(&self, matches: impl Fn(&Details) -> bool) -> Option<Arc<Entry>> {
        self.shared.all().into_iter().find(|entry| matches(&entry.details))
    }

    /// Commands to the sandbox `id` that were sent and not answered yet.
    pub fn unanswered(&self, id: &SandboxId) -> usize {
        self.find(id).map_or(0, |entry| entry.unanswered.load(Ordering::Relaxed))
    }

    /// Every visible sandbox of every team.
    pub(crate) fn all_views(&self) -> Vec<View> {
        self.shared.all().iter().map(|entry| entry.view()).filter(View::is_visible).collect()
    }

    /// The state of a sandbox of any team that was made from this template: running, or paused if none is running.
    pub(crate) fn state_of_users(&self, template: &TemplateId) -> Option<&'static str> {
        let entries = self.shared.all();
        let users = entries.iter().filter(|entry| entry.details.build.template_id() == template);
        let states: Vec<_> =
            users.map(|entry| if entry.view().is_paused() { "paused" } else { "running" }).collect();
        states.iter().copied().max()
    }

    /// Admission control of starts.
    pub(crate) fn admission(&self) -> &Admission {
        &self.shared.admission
    }

    /// Removes every sandbox of every team, as an operator.
    pub async fn kill_all(&self) {
        self.kill(self.shared.all()).await;
    }

    /// Removes every sandbox of a team, as an operator; returns how many were removed, and how many were not.
    pub(crate) async fn kill_of(&self, team: Uuid) -> (u32, u32) {
        let mut entries = self.shared.all();
        entries.retain(|entry| entry.details.team == team);
        self.kill(entries).await
    }

    /// Brings the memory of all paused sandboxes to disk, as nothing in memory outlives the host. Where it cannot be stored, it is given up for
    /// their files, which are kept. Sandboxes that run stay as they are.
    pub async fn leave_host(&self) {
        let frozen = self.shared.all().into_iter().filter(|entry| parking::is_frozen(&entry.view()));
        stream::iter(frozen).for_each_concurrent(parking::CONCURRENT, leave_host).await;
    }

    /// Notes that the limits of a team may have been changed.
    pub(crate) fn limits_changed(&self, team: &Team) {
        self.shared.parked.limit(team.id, team.quota.parked_mib.saturating_mul(1 << 20));
    }

    async fn kill(&self, entries: Vec<Arc<Entry>>) -> (u32, u32) {
        let outcomes = stream::iter(entries).map(|entry| async move {
            match entry.execute(Command::Kill(KillReason::Admin)).await {
                Ok(_) => (1, 0),
                // The sandbox ended by itself.
                Err(error) if matches!(error.unshared(), Error::SandboxNotFound(_)) => (0, 0),
                Err(err) => {
                    tracing::warn!(sandbox_id = %entry.details.id, error = %err, "sandbox was not killed");
                    (0, 1)
                }
            }
        });
        let outcomes: Vec<(u32, u32)> = outcomes.buffer_unordered(CONCURRENT_KILLS).collect().await;
        outcomes.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Closes the idle connections to every sandbox.
    pub(crate) fn close_idle_connections(&self) {
        for entry in self.shared.all() {
            if let Some(live) = entry.view().live {
                live.pool.clear();
            }
        }
    }

    /// Cuts the streams of every sandbox; the sandboxes stay as they are.
    pub(crate) fn cut_streams(&self) {
        for entry in self.shared.all() {
            if let Some(live) = entry.view().live {
                live.end();
            }
        }
    }

    /// The host side.
    pub(crate) fn host(&self) -> &Host {
        &self.shared.host
    }

    /// Ends every driver. Sandboxes stay as they are; the host side releases the resources that they do not need.
    pub(crate) async fn stop(&self) {
        self.shared.stopping.cancel();
        self.tracker.close();
        self.tracker.wait().await;
        observed::store(&self.shared, 1, &mut Storing::Works).await;
        match self.shared.host.stop().await {
            Ok(report) => {
                tracing::debug!(removed = ?report.removed, failed = ?report.failed, "released what no sandbox needs");
            }
            Err(err) => tracing::warn!(error = ?err, "failed to release what no sandbox needs"),
        }
    }
}

async fn leave_host(entry: Arc<Entry>) {
    let id = &entry.details.id;
    let Err(error) = entry.execute(Command::Park).await else { return };
    tracing::warn!(sandbox_id = %id, %error, "memory of a paused sandbox cannot be stored, and only its files are kept");
    if let Err(error) = entry.execute(Command::Demote).await {
        tracing::warn!(sandbox_id = %id, %error, "memory of a paused sandbox was not released");
    }
}

/// Ends the claim of a request to its idempotency key, which is released unless the request has created a sandbox.
async fn end_claim(shared: &Shared, team: Uuid, key: String, has_created: bool) {
    if !has_created && let Err(err) = shared.store.abandon_idempotent(team, &key).await {
        tracing::error!(error = ?err, "the idempotency key of a failed request was not released");
    }
    shared.creating.lock().unwrap_or_else(PoisonError::into_inner).remove(&(team, key));
}
