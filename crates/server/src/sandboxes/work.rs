//! What the changes of phase do: to processes, files, and the row that says what a restarted server may count on. The order
//! of the two is what makes a crash between them harmless, so it is in one place.

use std::io::ErrorKind;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sandcove_isolate::{Error as IsolateError, Files, Handle, crash};

use super::create;
use super::lifecycle::{Keep, Phase, Session};
use super::record::{StoredState, View};
use super::registry::Shared;
use crate::events::{Happened, KillReason, describe};
use crate::{Error, Result, clock};

/// A change that is being made. It gives the processes there are afterwards.
pub(super) type Work = BoxFuture<'static, Result<Option<Handle>>>;

/// Everything a change needs.
pub(super) struct Subject {
    pub(super) shared: Arc<Shared>,
    pub(super) view: View,
    /// Its processes; none after a pause that kept only files.
    pub(super) handle: Option<Handle>,
}

impl Subject {
    /// Pauses it. Files only: the row comes first, because from the first killed process on there is no way back to
    /// running; a server that finds the row ends what is left.
    pub(super) fn pause(self, keep: Keep) -> Work {
        async move {
            match keep {
                Keep::Memory => {
                    let handle = self.processes()?;
                    handle.pause().await.map_err(self.failed("pause"))?;
                    Ok(Some(handle.clone()))
                }
                Keep::Files => {
                    // One that was paused already, and has lost its processes, is not told of again.
                    let happened = (self.view.phase == Phase::Running).then_some(Happened::Paused);
                    self.shut_down("pause", happened).await?;
                    Ok(None)
                }
            }
        }
        .boxed()
    }

    /// Lets it go on.
    pub(super) fn resume(self, from: Keep) -> Work {
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

    /// Keeps its files under `name`.
    pub(super) fn snapshot(self, name: String) -> Work {
        async move {
            let handle = self.processes()?;
            let frozen = handle.snapshot(&name).await.map_err(|source| match source {
                IsolateError::NoSnapshots => Error::SnapshotsUnsupported(source),
                // Its processes do not stop, which is mostly because they wait for a disk.
                IsolateError::Path { source: ref cause, .. } if cause.kind() == ErrorKind::TimedOut => {
                    Error::Busy(self.view.details.id.clone(), source)
                }
                source => self.failed("take a snapshot of")(source),
            })?;
            self.shared.telemetry.stood_still(frozen);
            tracing::debug!(sandbox_id = %self.view.details.id, ?frozen, "snapshot taken");
            Ok(Some(handle.clone()))
        }
        .boxed()
    }

    /// Removes everything of it. The row goes first: without it, whatever is left is swept. When it cannot go, that is no
    /// reason to keep the rest.
    pub(super) fn stop(self, reason: KillReason) -> Work {
        async move {
            let id = &self.view.details.id;
            let killed = describe(&self.view, &Happened::Killed(reason));
            let forgotten = self.shared.store.delete_sandbox(id, &killed).await;
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
                // It no longer runs for anybody; what is left of it goes when it can, at the next start at the latest.
                tracing::error!(sandbox_id = %id, error = ?err, "sandbox was not removed completely");
            }
            crash::point("kill.removed");
            if forgotten.is_err() {
                self.shared.store.delete_sandbox(id, &killed).await?;
            }
            Ok(None)
        }
        .boxed()
    }

    /// `happened` is what its row is stored with.
    async fn shut_down(&self, action: &'static str, happened: Option<Happened>) -> Result<()> {
        let Some(handle) = self.handle.clone() else { return Ok(()) };
        // Shown as the end of a paused sandbox.
        let session = Session { end_at: self.view.session.end_at.min(clock::now()), ..self.view.session };
        let event = happened.map(|happened| describe(&self.view, &happened));
        let (details, settings) = (&self.view.details, &self.view.settings);
        let state = StoredState::Paused(Keep::Files);
        self.shared.store.update_sandbox(&details.id, state, &session, settings, event.as_ref()).await?;
        crash::point("shutdown.recorded");
        handle.shut_down().await.map_err(self.failed(action))
    }

    async fn start(&self) -> Result<Handle> {
        let details = &self.view.details;
        let build =
            details.build.as_ref().ok_or(Error::Internal("it is not known what the sandbox is made from"))?;
        let spec = create::spec(&self.shared, details, build, &self.view.settings.network, Files::Own);
        let handle = self.shared.backend.create(spec).await.map_err(|source| match source {
            IsolateError::NoSlot(_) => Error::NoCapacity(source),
            IsolateError::AgentSlow { .. } => Error::StartTimeout(source),
            source => self.failed("start")(source),
        })?;
        crash::point("resume.started");
        Ok(handle)
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
