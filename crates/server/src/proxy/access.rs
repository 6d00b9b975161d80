//! Access to a sandbox: whether a request may pass, and whether the sandbox has to be resumed for it. The agent checks its own token,
//! which is looked at here only where a request would resume a sandbox or identifies it.

use std::sync::Arc;

use http::{HeaderMap, Method};
use sandcove_wire::boot::{AGENT_PORT, INTERPRETER_PORT};
use sandcove_wire::id::SandboxId;
use tokio::time::timeout;

use super::Refusal;
use super::signature::SignedUrl;
use crate::Error;
use crate::clock;
use crate::config::InterpreterToken;
use crate::domain::lifecycle::{Command, Phase};
use crate::domain::sandbox::Details;
use crate::sandboxes::{LiveSession, View};
use crate::state::App;

/// The parts of a request that access depends on.
pub(super) struct RequestHead<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
    pub(super) headers: &'a HeaderMap,
}

/// A running sandbox that the request may pass to, and its way in.
pub(super) struct Authorized {
    pub(super) live: Arc<LiveSession>,
    pub(super) view: View,
}

impl RequestHead<'_> {
    /// The sandbox whose token or signature the request carries.
    pub(super) fn find(&self, app: &App) -> Option<SandboxId> {
        let token = text(self.headers, "x-access-token");
        let signed = SignedUrl::parse(self.method, self.path, self.query);
        let entry = match (token, &signed) {
            (Some(token), _) => app.sandboxes().find_by(|details| details.access_token.matches(token)),
            (None, Some(url)) => {
                let is_signed_with = url.check();
                app.sandboxes().find_by(|details| is_signed_with(&details.access_token))
            }
            (None, None) => None,
        }?;
        Some(entry.details.id.clone())
    }

    /// Authorizes the request for `port` of sandbox `id`, and resumes the sandbox if the request may do that.
    pub(super) async fn authorize(
        &self,
        app: &App,
        id: &SandboxId,
        port: u16,
    ) -> Result<Authorized, Refusal> {
        let not_found = || Refusal::NotFound(id.to_string());
        let entry = app.sandboxes().find(id).ok_or_else(not_found)?;
        let view = entry.view();
        if !view.is_visible() {
            return Err(not_found());
        }
        if port != AGENT_PORT {
            self.check_traffic_token(&view.details)?;
        }
        if port == INTERPRETER_PORT {
            self.check_interpreter_token(app.config().interpreter_token, &view.details)?;
        }
        if let Some(live) = &view.live {
            return Ok(Authorized { live: live.clone(), view });
        }
        match (view.phase, view.details.auto_resume) {
            // A sandbox that is being paused is answered like a paused one: a 409 would make `is_running()` of the SDKs
            // raise.
            (Phase::Paused(_) | Phase::Pausing(_) | Phase::Parking, false) => return Err(not_found()),
            (Phase::Paused(_) | Phase::Pausing(_) | Phase::Parking, true) => {
                self.check_may_wake(&view.details, port)?;
            }
            // Another request resumes the sandbox; this one waits for the same transition.
            _ => {}
        }
        let woken = timeout(app.config().transition_deadline, entry.execute(Command::Wake)).await;
        let in_transition = |_| match view.details.auto_resume {
            true => Refusal::InTransition(id.to_string()),
            false => not_found(),
        };
        woken.map_err(in_transition)?.map_err(|error| match error.unshared() {
            // A sandbox whose processes end during a resume is reported as in transition.
            Error::SandboxNotFound(_) | Error::InTransition(_) | Error::PausedUnresponsive(_) => not_found(),
            Error::TooManySandboxes(limit) => Refusal::TeamLimit(id.to_string(), *limit),
            other => {
                tracing::error!(sandbox_id = %id, error = ?other, "sandbox could not be woken");
                Refusal::Failed(id.to_string())
            }
        })?;
        let view = entry.view();
        let live = view.live.clone().ok_or_else(not_found)?;
        Ok(Authorized { live, view })
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

    /// Refuses to run code for a client without the sandbox's token, if the sandbox demands it. Clients send it with code only,
    /// not with calls that manage contexts (contract: interpreter, section 1).
    pub(super) fn check_interpreter_token(
        &self,
        demanded: InterpreterToken,
        details: &Details,
    ) -> Result<(), Refusal> {
        let is_open = match demanded {
            InterpreterToken::Never => true,
            InterpreterToken::Secure => {
                let manages_contexts = self.path == "/contexts" || self.path.starts_with("/contexts/");
                manages_contexts || !details.interpreter_policy.is_required()
            }
            InterpreterToken::Always => false,
        };
        // Preflights of browsers have no credentials.
        if is_open || self.path == "/health" || self.method == Method::OPTIONS || self.has_token(details) {
            return Ok(());
        }
        Err(Refusal::InterpreterToken(details.id.to_string()))
    }

    fn has_token(&self, details: &Details) -> bool {
        text(self.headers, "x-access-token").is_some_and(|token| details.access_token.matches(token))
    }

    /// Refuses a request that may not resume the sandbox because the agent would refuse it anyway.
    fn check_may_wake(&self, details: &Details, port: u16) -> Result<(), Refusal> {
        if port != AGENT_PORT || !details.token_policy.is_required() {
            return Ok(());
        }
        let is_signed = || {
            SignedUrl::parse(self.method, self.path, self.query).is_some_and(|url| {
                url.check()(&details.access_token) && !url.is_expired(clock::now().as_second())
            })
        };
        if self.has_token(details) || is_signed() {
            Ok(())
        } else {
            Err(Refusal::WakeForbidden(details.id.to_string()))
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}
