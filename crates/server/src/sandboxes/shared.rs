//! The state that the registry, the drivers and the background tasks share.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use sandcove_host::{Handle, Host};
use sandcove_isolate::{NetworkPolicy, SealedSecret, descriptor_limit};
use sandcove_wire::id::SandboxId;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::Span;
use uuid::Uuid;

use super::admission::{Admission, Capacity};
use super::command::{Outcome, QueuedCommand};
use super::connections::ConnectionBudgets;
use super::health;
use super::live_session::LiveSession;
use super::log::SandboxLog;
use super::memory::FrozenMemory;
use super::parked::ParkedMemory;
use super::parking::Parking;
use super::removed::Removed;
use super::samples::Samples;
use super::view::View;
use crate::domain::header_rules;
use crate::domain::lifecycle::Command;
use crate::domain::network::NetworkRules;
use crate::domain::sandbox::Details;
use crate::store::Store;
use crate::telemetry::Telemetry;
use crate::{Error, Result};

/// The state that drivers share.
pub(super) struct Shared {
    pub(super) host: Host,
    pub(super) store: Store,
    pub(super) admission: Admission,
    pub(super) memory: FrozenMemory,
    pub(super) parking: Parking,
    pub(super) parked: ParkedMemory,
    pub(super) connections: ConnectionBudgets,
    pub(super) telemetry: Arc<Telemetry>,
    /// Cancelled when the server stops.
    pub(super) stopping: CancellationToken,
    entries: RwLock<HashMap<SandboxId, Arc<Entry>>>,
    /// Sandboxes that are gone, until everything observed of them is stored.
    pub(super) removed: Removed<Entry>,
    /// Idempotent creates in flight, by team and key.
    pub(super) creating: Mutex<HashSet<(Uuid, String)>>,
}

/// A sandbox as everything but its driver reaches it.
pub(crate) struct Entry {
    pub(crate) details: Arc<Details>,
    pub(crate) log: Arc<SandboxLog>,
    pub(crate) samples: Samples,
    pub(super) view: watch::Receiver<View>,
    pub(super) commands: mpsc::Sender<QueuedCommand>,
    /// Commands that were sent and not answered yet.
    pub(super) unanswered: AtomicUsize,
}

/// Counts a command as unanswered while it lives.
struct Unanswered<'a>(&'a AtomicUsize);

impl<'a> Unanswered<'a> {
    fn count(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Entry {
    /// The sandbox now.
    pub(crate) fn view(&self) -> View {
        self.view.borrow().clone()
    }

    /// Fails when the sandbox runs and its agent does not answer.
    pub(crate) async fn require_healthy(&self) -> Result<()> {
        match self.view().live {
            Some(live) if !health::agent_answers(&live).await => Err(self.unresponsive()),
            _ => Ok(()),
        }
    }

    /// Fails when the sandbox runs and its agent is silent.
    pub(crate) async fn require_no_silence(&self) -> Result<()> {
        match self.view().live {
            Some(live) if health::agent_is_silent(&live).await => Err(self.unresponsive()),
            _ => Ok(()),
        }
    }

    fn unresponsive(&self) -> Error {
        Error::AgentUnresponsive(self.details.id.clone())
    }

    /// Sends a command to the driver and waits for the answer.
    pub(crate) async fn execute(&self, command: Command) -> Result<Outcome> {
        self.execute_asked_at(Instant::now(), command).await
    }

    /// Does what [`Entry::execute`] does, for a client that has decided to ask at `asked_at` or before.
    pub(crate) async fn execute_asked_at(&self, asked_at: Instant, command: Command) -> Result<Outcome> {
        let gone = || Error::SandboxNotFound(self.details.id.to_string());
        let (reply, answer) = oneshot::channel();
        let queued = QueuedCommand { command, reply, asked_at, span: Span::current() };
        self.commands.send(queued).await.map_err(|_| gone())?;
        let _unanswered = Unanswered::count(&self.unanswered);
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Shared {
    /// The policy of a sandbox with these network rules, with the secrets that they need, as far as the team has them.
    pub(super) async fn policy(&self, details: &Details, network: &NetworkRules) -> Result<NetworkPolicy> {
        let identity = details.tokens.as_ref().map(|tokens| tokens.of(details));
        let mut policy = NetworkPolicy { rates: details.rates, ..network.policy() };
        if !policy.hosts.is_empty() {
            policy.identity = identity.map(Box::new);
        }
        for name in header_rules::secrets(&policy.hosts) {
            if let Some(secret) = self.store.secret(details.team, &name.to_ascii_lowercase()).await? {
                let context = secret.context();
                policy.secrets.insert(name, SealedSecret { context, sealed: secret.sealed });
            }
        }
        Ok(policy)
    }

    pub(super) fn new(
        host: Host,
        store: Store,
        capacity: Capacity,
        can_park: bool,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self {
            host,
            store,
            admission: Admission::new(capacity),
            memory: FrozenMemory::new(capacity.paused_bytes),
            parking: Parking::new(can_park, capacity.park_after),
            parked: ParkedMemory::default(),
            connections: ConnectionBudgets::new(descriptor_limit()),
            telemetry,
            stopping: CancellationToken::new(),
            entries: RwLock::default(),
            removed: Removed::default(),
            creating: Mutex::default(),
        }
    }

    /// The way into a sandbox of `team` that runs.
    pub(super) fn live(&self, handle: Handle, team: Uuid) -> Arc<LiveSession> {
        Arc::new(LiveSession::new(handle, self.connections.of(team)))
    }

    /// Makes a sandbox known.
    pub(super) fn insert(&self, entry: Entry) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.insert(entry.details.id.clone(), Arc::new(entry));
    }

    /// Takes a sandbox that is gone out of the known ones.
    pub(super) fn remove(&self, id: &SandboxId) {
        let entry = self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(entry) = entry {
            self.removed.add(entry);
        }
    }

    /// The sandbox `id` of any team.
    pub(super) fn get(&self, id: &SandboxId) -> Option<Arc<Entry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Every sandbox of every team.
    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
