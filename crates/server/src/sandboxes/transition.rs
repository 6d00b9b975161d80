//! The transitions of a sandbox: what they do to its processes, its files, and the row that a restarted server relies on.
//! The order of these steps makes a crash between them harmless, so all of it is in one place.

use std::io::ErrorKind;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sandcove_host::Handle;
use sandcove_isolate::{Error as IsolateError, Files, crash};
use sandcove_wire::api::event::SandboxEvent;

use super::memory;
use super::shared::Shared;
use super::spec::spec;
use super::view::View;
use crate::domain::event::{KillReason, LifecycleEvent};
use crate::domain::lifecycle::{Keep, Phase, Session};
use crate::domain::sandbox::StoredState;
use crate::events::describe;
use crate::{Error, Result, clock, traces};

/// A transition in flight; returns the processes that there are afterwards.
pub(super) type TransitionFuture = BoxFuture<'static, Result<Option<Handle>>>;

/// Everything a transition needs.
pub(super) struct TransitionContext {
    pub(super) shared: Arc<Shared>,
    pub(super) view: View,
    /// The sandbox's processes; none after a pause that kept only files.
    pub(super) handle: Option<Handle>,
}

impl TransitionContext {
    /// Pauses the sandbox. A pause that keeps only files writes the row first, because there is no way back to running
    /// after the first process was killed; a server that finds the row ends the remaining ones.
    pub(super) fn pause(self, keep: Keep) -> TransitionFuture {
        async move {
            match keep {
                Keep::Memory => {
                    let handle = self.processes()?;
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

    /// Resumes the sandbox.
    pub(super) fn resume(self, from: Keep) -> TransitionFuture {
        async move {
            match from {
                Keep::Memory => {
                    let handle = self.processes()?;
                    handle.resume().await.map_err(self.failed("resume"))?;
                    crash::point("resume.thawed");
                    Ok(Some(handle.clone()))
                }
                Keep::Files => {
                    self.shut_down("resume", None).await?;
                    self.start().await.map(Some)
                }
            }
        }
        .boxed()
    }

    /// Takes a snapshot of the sandbox's files under `name`; `account` is charged for it.
    pub(super) fn snapshot(self, name: String, account: u64) -> TransitionFuture {
        async move {
            let handle = self.processes()?;
            let frozen = handle.snapshot(&name, account).await.map_err(|source| match source {
                IsolateError::NoSnapshots => Error::SnapshotsUnsupported(source),
                IsolateError::PoolNearlyFull { .. } => Error::PoolNearlyFull(source),
                // The processes cannot be frozen, mostly because they wait for a disk.
                IsolateError::Path { source: ref cause, .. } if cause.kind() == ErrorKind::TimedOut => {
                    Error::Busy(self.view.details.id.clone(), source)
                }
                source => self.failed("take a snapshot of")(source),
            })?;
            self.shared.telemetry.frozen_for(frozen);
            tracing::debug!(sandbox_id = %self.view.details.id, ?frozen, "snapshot taken");
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
                None => Ok(()),
            };
            let removed = match self.view.phase {
                Phase::Paused(Keep::Files) => removed.and(self.shared.backend.discard(id).await),
                _ => removed,
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

    async fn start(&self) -> Result<Handle> {
        let details = &self.view.details;
        let build =
            details.build.record().ok_or(Error::Internal("it is not known what the sandbox is made from"))?;
        let spec = spec(details, build, &self.view.settings.network, Files::Own);
        let started = loop {
            match self.shared.backend.create(spec.clone()).await {
                Err(IsolateError::NoSlot(_)) if memory::free_slot(&self.shared).await => {}
                started => break started,
            }
        };
        let handle = started.map_err(|source| match source {
            IsolateError::NoSlot(_) => Error::NoCapacity(source),
            IsolateError::AgentSlow { .. } => Error::StartTimeout(source),
            source => self.failed("start")(source),
        })?;
        traces::record_start(&handle);
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
