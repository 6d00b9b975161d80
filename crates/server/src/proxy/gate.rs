//! From a target to a running sandbox: may this request pass, and must the sandbox be woken for it?

use std::sync::Arc;

use http::{HeaderMap, Method};
use sandcove_wire::boot::AGENT_PORT;
use sandcove_wire::id::SandboxId;
use tokio::time::timeout;

use super::Refusal;
use super::signature::SignedUrl;
use crate::Error;
use crate::app::App;
use crate::sandboxes::lifecycle::Phase;
use crate::sandboxes::{Details, Live, Request, View};

/// What of a request decides whether it passes.
pub(super) struct Visitor<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
    pub(super) headers: &'a HeaderMap,
}

/// A sandbox that takes the request.
pub(super) struct Admitted {
    pub(super) live: Arc<Live>,
    pub(super) view: View,
}

impl Visitor<'_> {
    /// The sandbox whose token or signature the request carries.
    pub(super) fn find(&self, app: &App) -> Option<SandboxId> {
        let token = text(self.headers, "x-access-token");
        let signed = SignedUrl::parse(self.method, self.path, self.query);
        let entry = match (token, &signed) {
            (Some(token), _) => app.sandboxes().find_by(|details| details.access_token.matches(token)),
            (None, Some(url)) => app.sandboxes().find_by(|details| url.is_signed_with(&details.access_token)),
            (None, None) => None,
        }?;
        Some(entry.details.id.clone())
    }

    /// Lets the request in to `port` of sandbox `id`, waking it if it may be woken.
    pub(super) async fn admit(&self, app: &App, id: &SandboxId, port: u16) -> Result<Admitted, Refusal> {
        let not_found = || Refusal::NotFound(id.to_string());
        let entry = app.sandboxes().find(id).ok_or_else(not_found)?;
        let view = entry.view();
        if !view.is_visible() {
            return Err(not_found());
        }
        if port != AGENT_PORT {
            self.check_traffic_token(&view.details)?;
        }
        if let Some(live) = &view.live {
            return Ok(Admitted { live: live.clone(), view });
        }
        match (view.phase, view.details.auto_resume) {
            // It is as good as paused: a 409 would make `is_running()` of the SDKs raise.
            (Phase::Paused(_) | Phase::Pausing(_), false) => return Err(not_found()),
            (Phase::Paused(_) | Phase::Pausing(_), true) => self.check_may_wake(&view.details, port)?,
            // It comes back for somebody else; this request waits with them.
            _ => {}
        }
        let woken = timeout(app.config().transition_deadline, entry.ask(Request::Wake)).await;
        let in_transition = |_| match view.details.auto_resume {
            true => Refusal::InTransition(id.to_string()),
            false => not_found(),
        };
        woken.map_err(in_transition)?.map_err(|error| match error {
            // The second: it ended by itself while it came back.
            Error::SandboxNotFound(_) | Error::InTransition(_) => not_found(),
            Error::TooManySandboxes(limit) => Refusal::TeamLimit(id.to_string(), limit),
            other => {
                tracing::error!(sandbox_id = %id, error = ?other, "sandbox could not be woken");
                Refusal::Failed(id.to_string())
            }
        })?;
        let view = entry.view();
        let live = view.live.clone().ok_or_else(not_found)?;
        Ok(Admitted { live, view })
    }

    fn check_traffic_token(&self, details: &Details) -> Result<(), Refusal> {
        let Some(expected) = &details.traffic_token else { return Ok(()) };
        let id = || details.id.to_string();
        match text(self.headers, "e2b-traffic-access-token") {
            None => Err(Refusal::TokenMissing(id())),
            Some(token) if expected.matches(token) => Ok(()),
            Some(_) => Err(Refusal::TokenInvalid(id())),
        }
    }

    /// A request the agent would refuse must not wake the sandbox.
    fn check_may_wake(&self, details: &Details, port: u16) -> Result<(), Refusal> {
        if port != AGENT_PORT || !details.token_required {
            return Ok(());
        }
        let has_token =
            text(self.headers, "x-access-token").is_some_and(|token| details.access_token.matches(token));
        let is_signed = || {
            SignedUrl::parse(self.method, self.path, self.query)
                .is_some_and(|url| url.is_signed_with(&details.access_token))
        };
        if has_token || is_signed() { Ok(()) } else { Err(Refusal::WakeForbidden(details.id.to_string())) }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}
