//! Commands that need no transition, and the row of a sandbox.

use std::sync::Arc;
use std::time::Duration;

use super::Driver;
use crate::domain::event::LifecycleEvent;
use crate::domain::lifecycle::Command;
use crate::domain::network::NetworkChange;
use crate::domain::sandbox::{Settings, StoredState};
use crate::events::describe;
use crate::sandboxes::command::Outcome;
use crate::sandboxes::view::View;
use crate::{Error, Result, clock};

/// Minimum time that a refresh gives.
const MIN_REFRESH: Duration = Duration::from_secs(15);

impl Driver {
    /// Applies the values of a command.
    pub(super) async fn apply(&mut self, command: Command) -> Result<Outcome> {
        let now = clock::now();
        let max_session = self.team.max_session;
        let mut session = self.view.borrow().session;
        match command {
            Command::Connect { timeout, .. } => {
                session.try_extend(now, timeout, max_session).map_err(|_| Error::MaxSessionExceeded)?;
            }
            Command::SetTimeout(timeout) => session.set_end(now, timeout, max_session),
            Command::Refresh(duration) => session.extend(now, duration.max(MIN_REFRESH), max_session),
            Command::SetNetwork(update) => return self.set_network(update.map(|update| *update)).await,
            Command::Wake
            | Command::Pause(_)
            | Command::Resume { .. }
            | Command::Demote
            | Command::Park
            | Command::Kill(_)
            | Command::Snapshot(_)
            | Command::Fork(_) => return Ok(Outcome::WasRunning),
        }
        let moved = session.end_at != self.view.borrow().session.end_at;
        self.view.send_modify(|view| view.session = session);
        self.store(StoredState::Running, moved.then_some(LifecycleEvent::TimeoutSet(session.end_at))).await?;
        Ok(Outcome::WasRunning)
    }

    async fn set_network(&mut self, update: Option<NetworkChange>) -> Result<Outcome> {
        let settings = self.view.borrow().settings.clone();
        let is_changed = update.is_some();
        let network = match update {
            Some(update) => settings.network.replaced(update)?,
            None => settings.network.clone(),
        };
        let Some(handle) = &self.handle else {
            return Err(Error::Internal("a running sandbox has no processes"));
        };
        let details = self.view.borrow().details.clone();
        let policy = self.shared.policy(&details, &network).await?;
        handle.set_network(policy).await.map_err(|source| Error::Backend {
            action: "change the network of",
            id: self.view.borrow().details.id.clone(),
            source,
        })?;
        if !is_changed {
            return Ok(Outcome::Done);
        }
        self.view.send_modify(|view| view.settings = Arc::new(Settings { network, ..(*settings).clone() }));
        self.store(StoredState::Running, Some(LifecycleEvent::NetworkSet)).await?;
        Ok(Outcome::Done)
    }

    /// Stores the sandbox as it is now, with the event of the change, if it is one.
    pub(super) async fn store(&mut self, state: StoredState, event: Option<LifecycleEvent>) -> Result<()> {
        let view = self.view.borrow().clone();
        let View { details, session, settings, .. } = &view;
        let event = event.map(|event| describe(details, session, &settings.network, &event));
        self.shared.store.update_sandbox(&details.id, state, session, settings, event.as_ref()).await
    }
}
