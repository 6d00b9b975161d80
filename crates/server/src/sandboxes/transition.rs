//! The transitions of a sandbox: what they do to its processes, its files, and the row that a restarted server relies on.
//! The order of these steps makes a crash between them harmless, so all of it is in one place.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sandcove_host::Handle;
use sandcove_isolate::{Error as IsolateError, Files, Mounted, SandboxSpec, SnapshotMemory, crash};
use sandcove_wire::api::event::SandboxEvent;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::health;
use super::memory;
use super::parked::{Reservation, ToPark};
use super::shared::Shared;
use super::spec::spec;
use super::view::View;
use crate::domain::event::{KillReason, LifecycleEvent};
use crate::domain::lifecycle::{Keep, Phase, Session, SnapshotOrder};
use crate::domain::sandbox::{Settings, StoredState};
use crate::domain::template::TemplateRecord;
use crate::events::describe;
use crate::{Error, Result, clock, otlp};

/// A transition in flight; returns the processes that there are afterwards.
pub(super) type TransitionFuture = BoxFuture<'static, Result<Option<Handle>>>;

/// Everything a transition needs.
pub(super) struct TransitionContext {
    pub(super) shared: Arc<Shared>,
    pub(super) view: View,
    /// The sandbox's processes; none after a pause that kept only files, and when memory is on disk.
    pub(super) handle: Option<Handle>,
    /// Notes between the transition and its driver.
    pub(super) notes: Arc<Notes>,
}

/// Notes between a transition in flight and its driver.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// A command waits that wants the sandbox as it is: parking is given up if that is still possible.
    pub(super) is_waited_for: CancellationToken,
    /// Bytes on disk that the team had left, when they were too few for the memory of the sandbox.
    pub(super) too_few: OnceLock<u64>,
    /// Whether the agent did not answer when its sandbox was paused.
    pub(super) unresponsive: AtomicBool,
    /// Why memory could not be restored; the sandbox has only its files since.
    pub(super) lost_memory: OnceLock<String>,
    /// Outcome for the memory of a snapshot.
    pub(super) snapshot_memory: OnceLock<SnapshotMemory>,
}

impl TransitionContext {
    /// Pauses the sandbox. A pause that keeps only files writes the row first, because there is no way back to running
    /// after the first process was killed; a server that finds the row ends the remaining ones.
    pub(super) fn pause(self, keep: Keep) -> TransitionFuture {
        async move {
            match keep {
                Keep::Memory => {
                    let handle = self.processes()?;
                    if let Some(live) = &self.view.live {
                        self.notes.unresponsive.store(health::agent_is_silent(live).await, Ordering::Relaxed);
                    }
                    handle.pause().await.map_err(self.failed("pause"))?;
                    Ok(Some(handle.clone()))
                }
                Keep::Files => {
                    let event = match self.view.phase {
                        Phase::Running => Some(LifecycleEvent::Paused),
                        // A paused sandbox that has lost its processes is not reported as paused again.
                        _ => self.view.settings.demoted.then_some(LifecycleEvent::Demoted),
                    };
                    self.shut_down("pause", event).await?;
                    Ok(None)
                }
            }
        }
        .boxed()
    }

    /// Brings the memory of the paused sandbox to disk, within what its team may have there; waits up to `max_wait` for others of the team. `too_few`
    /// bytes were not enough before. The row is written when the memory is there, and before the first process is ended.
    /// Without a row, a server finds the processes, or else the memory. Returns the processes when parking was given up.
    pub(super) fn park(self, too_few: Option<u64>, max_wait: Duration) -> TransitionFuture {
        async move {
            let (id, handle) = (&self.view.details.id, self.processes()?);
            let max_mib = self.max_parked_mib().await?;
            let Some(reservation) = self.reserve(max_mib, too_few, max_wait).await? else {
                return Ok(Some(handle.clone()));
            };
            let max_bytes = reservation.bytes();
            let is_team_limit = max_bytes < self.view.details.limits.max_stored_bytes();
            let parked = handle.park(self.mounted()?, max_bytes).await;
            let bytes = parked.map_err(|source| match source {
                IsolateError::NotStored { reason } => Error::NotParked(id.clone(), reason),
                IsolateError::MemoryTooLarge { .. } if is_team_limit => self.too_few(max_mib, max_bytes),
                source @ IsolateError::MemoryTooLarge { .. } => Error::NotParked(id.clone(), source.to_string()),
                source => self.failed("park")(source),
            })?;
            // Until the sandbox is resumed or killed: what follows may fail, and the memory is on disk.
            reservation.stored(bytes);
            // The driver receives the commands first that have come meanwhile.
            tokio::task::yield_now().await;
            if self.notes.is_waited_for.is_cancelled() {
                // The sandbox is wanted at once, and a resume deletes what is on disk.
                return Ok(Some(handle.clone()));
            }
            let settings = Settings { parked: Some(bytes), ..(*self.view.settings).clone() };
            let state = StoredState::Paused(Keep::Memory);
            self.shared.store.update_sandbox(id, state, &self.view.session, &settings, None).await?;
            crash::point("park.recorded");
            if let Err(error) = handle.clone().shut_down().await {
                // What is left is removed at the next start at the latest. It never runs again: it is frozen, or dying.
                tracing::error!(sandbox_id = %id, error = &error as &dyn std::error::Error, "a parked sandbox was not ended completely");
            }
            crash::point("park.ended");
            Ok(None)
        }
        .boxed()
    }

    /// Limit on the memory of the team's paused sandboxes that is on disk, MiB.
    async fn max_parked_mib(&self) -> Result<u64> {
        // An operator may have changed it.
        let team = self.shared.store.team(self.view.details.team).await?;
        Ok(team.ok_or(Error::TeamNotFound)?.quota.parked_mib)
    }

    /// Reserves bytes on disk for the memory of the sandbox; none when a command waits that wants the sandbox as it is, or when nobody waits for
    /// this and others of the team come first.
    async fn reserve(
        &self,
        max_mib: u64,
        too_few: Option<u64>,
        max_wait: Duration,
    ) -> Result<Option<Reservation>> {
        let details = &self.view.details;
        let max_bytes = details.limits.max_stored_bytes();
        let sandbox = ToPark { team: details.team, id: &details.id, max_bytes, too_few };
        let reserved =
            timeout(max_wait, self.shared.parked.reserve(sandbox, max_mib.saturating_mul(1 << 20)));
        match self.notes.is_waited_for.run_until_cancelled(reserved).await {
            Some(Ok(Ok(reservation))) => Ok(Some(reservation)),
            Some(Ok(Err(left))) => Err(self.too_few(max_mib, left)),
            Some(Err(_)) if !max_wait.is_zero() => {
                let _ = self.notes.too_few.set(too_few.unwrap_or_default());
                let reason = format!(
                    "other sandboxes of its team are being parked, and memory of the team's paused sandboxes may take {max_mib} MiB of \
                     disk (`pausedDiskMb`)"
                );
                Err(Error::NotParked(details.id.clone(), reason))
            }
            Some(Err(_)) | None => Ok(None),
        }
    }

    /// The error for a sandbox whose team has too few bytes left on disk.
    fn too_few(&self, max_mib: u64, left: u64) -> Error {
        let _ = self.notes.too_few.set(left);
        let reason = format!(
            "memory of the team's paused sandboxes may take {max_mib} MiB of disk (`pausedDiskMb`), and the sandbox needs more than the {} \
             MiB that are left",
            left >> 20
        );
        Error::NotParked(self.view.details.id.clone(), reason)
    }

    /// Resumes the sandbox.
    pub(super) fn resume(self, from: Keep) -> TransitionFuture {
        async move {
            match from {
                Keep::Memory if self.view.settings.parked.is_some() => self.restore().await.map(Some),
                Keep::Memory => {
                    let handle = self.processes()?;
                    let View { details, settings, .. } = &self.view;
                    let policy = self.shared.policy(details, &settings.network).await?;
                    match handle.resume().await {
                        Err(IsolateError::ProcessGone) => {
                            let lost = "its processes were killed while it was paused".to_owned();
                            // Their end is no news then.
                            let _ = self.notes.lost_memory.set(lost.clone());
                            handle.clone().shut_down().await.map_err(self.failed("resume"))?;
                            return self.start_without_memory(lost).await.map(Some);
                        }
                        resumed => resumed.map_err(self.failed("resume"))?,
                    }
                    if !policy.secrets.is_empty() {
                        // They may have other values by now.
                        handle.set_network(policy).await.map_err(self.failed("resume"))?;
                    }
                    crash::point("resume.thawed");
                    Ok(Some(handle.clone()))
                }
                Keep::Files => {
                    self.shut_down("resume", None).await?;
                    self.start(false).await.map(Some)
                }
            }
        }
        .boxed()
    }

    /// Takes a snapshot of the sandbox; `account` is charged for it.
    pub(super) fn snapshot(self, order: SnapshotOrder, account: u64) -> TransitionFuture {
        async move {
            let handle = self.processes()?;
            let memory = match order.keep {
                Keep::Memory => Some(self.mounted()?),
                Keep::Files => None,
            };
            let report =
                handle.snapshot(&order.name, account, memory).await.map_err(|source| match source {
                    IsolateError::NoSnapshots => Error::SnapshotsUnsupported(source),
                    IsolateError::PoolNearlyFull { .. } => Error::PoolNearlyFull(source),
                    // The processes cannot be frozen, mostly because they wait for a disk.
                    IsolateError::Path { source: ref cause, .. } if cause.kind() == ErrorKind::TimedOut => {
                        Error::Busy(self.view.details.id.clone(), source)
                    }
                    source => self.failed("take a snapshot of")(source),
                })?;
            self.shared.telemetry.frozen_for(report.frozen);
            tracing::debug!(sandbox_id = %self.view.details.id, frozen = ?report.frozen, "snapshot taken");
            let _ = self.notes.snapshot_memory.set(report.memory);
            Ok(Some(handle.clone()))
        }
        .boxed()
    }

    /// Removes the sandbox. The row goes first: without it, leftovers are swept. When the row cannot be deleted, the rest is
    /// removed all the same.
    pub(super) fn stop(self, reason: KillReason) -> TransitionFuture {
        async move {
            let id = &self.view.details.id;
            let killed = self.event(&LifecycleEvent::Killed(reason));
            let deleted = self.shared.store.delete_sandbox(id, &killed).await;
            crash::point("kill.forgotten");
            let removed = match self.handle {
                Some(handle) => handle.destroy().await,
                None => self.shared.host.discard(id).await,
            };
            if let Err(err) = removed {
                // Clients no longer see the sandbox; leftovers are removed at the next start at the latest.
                tracing::error!(sandbox_id = %id, error = ?err, "sandbox was not removed completely");
            }
            crash::point("kill.removed");
            if deleted.is_err() {
                self.shared.store.delete_sandbox(id, &killed).await?;
            }
            Ok(None)
        }
        .boxed()
    }

    /// Ends the processes, after the row was stored with the event of the transition, if there is one.
    async fn shut_down(&self, action: &'static str, event: Option<LifecycleEvent>) -> Result<()> {
        let Some(handle) = self.handle.clone() else { return Ok(()) };
        // Clients see this as the end of a paused sandbox.
        let session = Session { end_at: self.view.session.end_at.min(clock::now()), ..self.view.session };
        let event = event.map(|event| self.event(&event));
        let (details, settings) = (&self.view.details, &self.view.settings);
        let state = StoredState::Paused(Keep::Files);
        self.shared.store.update_sandbox(&details.id, state, &session, settings, event.as_ref()).await?;
        crash::point("shutdown.recorded");
        handle.shut_down().await.map_err(self.failed(action))
    }

    /// Starts the sandbox from its memory on disk. If that is not possible, it is started from its files.
    async fn restore(&self) -> Result<Handle> {
        let lost = match self.start(true).await {
            Ok(handle) => {
                if health::restored_agent_answers(&handle).await {
                    return Ok(handle);
                }
                handle.shut_down().await.map_err(self.failed("restart"))?;
                "its agent did not answer".to_owned()
            }
            Err(Error::NotParked(_, reason)) => reason,
            Err(error) => return Err(error),
        };
        self.start_without_memory(lost).await
    }

    /// Starts the sandbox from its files because its memory is lost, for the reason `lost`.
    async fn start_without_memory(&self, lost: String) -> Result<Handle> {
        let id = &self.view.details.id;
        tracing::warn!(sandbox_id = %id, reason = %lost, "the memory of a sandbox was not restored; it starts from its files");
        // With the mark, traffic may resume it from its files, if the start fails now.
        let settings = Settings { parked: None, demoted: true, ..(*self.view.settings).clone() };
        let event = self.event(&LifecycleEvent::Demoted);
        let (session, state) = (&self.view.session, StoredState::Paused(Keep::Files));
        self.shared.store.update_sandbox(id, state, session, &settings, Some(&event)).await?;
        let _ = self.notes.lost_memory.set(lost);
        self.shared.telemetry.memory_lost();
        self.start(false).await
    }

    /// Mounts of the processes.
    fn mounted(&self) -> Result<Mounted> {
        let volumes = self.view.details.mounts.iter().map(|mount| mount.mount.clone()).collect();
        Ok(Mounted { layers: self.build()?.blueprint().layers, volumes })
    }

    fn build(&self) -> Result<&TemplateRecord> {
        let unknown = Error::Internal("it is not known what the sandbox is made from");
        self.view.details.build.record().ok_or(unknown)
    }

    /// Starts the sandbox, from its memory on disk or only from its files.
    async fn start(&self, memory: bool) -> Result<Handle> {
        let details = &self.view.details;
        let network = self.shared.policy(details, &self.view.settings.network).await?;
        let spec = spec(details, self.build()?, network, Files::Own);
        let spec = SandboxSpec { memory, ..spec };
        let started = loop {
            match self.shared.host.create(spec.clone()).await {
                Err(IsolateError::NoSlot(_)) if memory::free_slot(&self.shared).await => {}
                started => break started,
            }
        };
        let handle = started.map_err(|source| match source {
            IsolateError::NoSlot(_) => Error::NoCapacity(source),
            IsolateError::NotStored { reason } => Error::NotParked(details.id.clone(), reason),
            IsolateError::AgentSlow { .. } => Error::StartTimeout(source),
            source => self.failed("start")(source),
        })?;
        otlp::record_start(&handle);
        crash::point("resume.started");
        Ok(handle)
    }

    fn event(&self, event: &LifecycleEvent) -> SandboxEvent {
        let View { details, session, settings, .. } = &self.view;
        describe(details, session, &settings.network, event)
    }

    fn processes(&self) -> Result<&Handle> {
        self.handle.as_ref().ok_or(Error::Internal("the sandbox has no processes"))
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(IsolateError) -> Error + use<> {
        let id = self.view.details.id.clone();
        move |source| match source {
            source if source.is_full() => Error::PoolFull(source),
            source => Error::Backend { action, id, source },
        }
    }
}
