//! Requests that need no change of phase, and the row of a sandbox.

use std::sync::Arc;
use std::time::Duration;

use sandcove_wire::api::network::NetworkUpdate;

use super::Driver;
use crate::events::{Happened, describe};
use crate::sandboxes::network::InvalidNetwork;
use crate::sandboxes::record::{Settings, StoredState, View};
use crate::sandboxes::request::{Outcome, Request};
use crate::{Error, Result, clock};

/// A refresh gives at least this much.
const LEAST_REFRESH: Duration = Duration::from_secs(15);

impl Driver {
    pub(super) async fn apply(&mut self, request: Request) -> Result<Outcome> {
        let now = clock::now();
        let longest = self.team.max_session;
        let mut session = self.view.borrow().session;
        match request {
            Request::Connect { timeout, .. } => session
                .try_extend(now, timeout, longest)
                .map_err(|_| Error::Refused("Max instance length exceeded".into()))?,
            Request::SetTimeout(timeout) => session.set_end(now, timeout, longest),
            Request::Refresh(duration) => session.extend(now, duration.max(LEAST_REFRESH), longest),
            Request::SetNetwork(update) => return self.set_network(*update).await,
            Request::Wake
            | Request::Pause(_)
            | Request::Resume { .. }
            | Request::Kill(_)
            | Request::Snapshot(_)
            | Request::Fork(_) => return Ok(Outcome::WasRunning),
        }
        let moved = session.end_at != self.view.borrow().session.end_at;
        self.view.send_modify(|view| view.session = session);
        self.store(StoredState::Running, moved.then_some(Happened::TimeoutSet(session.end_at))).await?;
        Ok(Outcome::WasRunning)
    }

    async fn set_network(&mut self, update: NetworkUpdate) -> Result<Outcome> {
        let settings = self.view.borrow().settings.clone();
        let network = settings.network.replaced(update)?;
        let Some(handle) = &self.handle else {
            return Err(Error::Internal("a running sandbox has no processes"));
        };
        handle.set_network(network.policy()).await.map_err(|source| Error::Backend {
            action: "change the network of",
            id: self.view.borrow().details.id.clone(),
            source,
        })?;
        self.view.send_modify(|view| view.settings = Arc::new(Settings { network, ..(*settings).clone() }));
        self.store(StoredState::Running, Some(Happened::NetworkSet)).await?;
        Ok(Outcome::Done)
    }

    /// Writes down what is so now, and what happened, for those who want to know.
    pub(super) async fn store(&mut self, state: StoredState, happened: Option<Happened>) -> Result<()> {
        let view = self.view.borrow().clone();
        let event = happened.map(|happened| describe(&view, &happened));
        let View { details, session, settings, .. } = &view;
        self.shared.store.update_sandbox(&details.id, state, session, settings, event.as_ref()).await
    }
}

impl From<InvalidNetwork> for Error {
    fn from(invalid: InvalidNetwork) -> Self {
        match invalid {
            InvalidNetwork::EgressProxyOff => Self::FeatureOff("egress proxy is not enabled on this server"),
            other => Self::Refused(other.to_string()),
        }
    }
}
