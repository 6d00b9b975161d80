//! What all requests share: the settings the host may change, and who a request speaks for.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::StatusCode;
use http::request::Parts;
use sandcove_wire::boot::Settings;
use sandcove_wire::secret::Secret;
use tokio::time::Instant;

use crate::account::{Account, Accounts};
use crate::path;
use crate::rpc::{Error, Result};

/// User of requests that name none, until settings say otherwise.
const FIRST_DEFAULT_USER: &str = "root";

/// Handle to the state of the daemon; cheap to clone.
pub type SharedState = Arc<State>;

/// What never changes once the sandbox is somebody's.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// `E2B_SANDBOX_ID`.
    pub sandbox_id: String,
    /// `E2B_TEMPLATE_ID`.
    pub template_id: String,
}

/// How a presented token compares with the one that is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenCheck {
    /// There is no token, so everybody is let in.
    Open,
    /// The request carries the token.
    Valid,
    /// The request carries no token. Only an [`Access::Required`] endpoint refuses it.
    Missing,
    /// The request carries another token.
    Wrong,
}

impl TokenCheck {
    /// Whether the request may go on.
    pub fn allows(self, access: Access) -> bool {
        match self {
            Self::Open | Self::Valid => true,
            Self::Missing => access == Access::Optional,
            Self::Wrong => false,
        }
    }
}

/// Whether a request without token is let in although there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Every request needs the token.
    Required,
    /// A wrong token is refused, a missing one is not.
    Optional,
}

/// The state of the daemon. Locks are held for the time of a copy only.
#[derive(Debug, Default)]
pub struct State {
    identity: OnceLock<Identity>,
    settings: RwLock<Settings>,
}

impl State {
    /// The state of a sandbox that is nobody's yet.
    pub fn new(settings: Settings) -> SharedState {
        Arc::new(Self { identity: OnceLock::new(), settings: RwLock::new(settings) })
    }

    /// Says who this sandbox is, once.
    pub fn assign(&self, identity: Identity) {
        // The host speaks once.
        let _ = self.identity.set(identity);
    }

    /// `E2B_SANDBOX_ID`; none when run by hand, or as long as the sandbox is nobody's.
    pub fn sandbox_id(&self) -> Option<&str> {
        Some(&self.identity.get()?.sandbox_id)
    }

    fn read<T>(&self, get: impl FnOnce(&Settings) -> T) -> T {
        // A panic while the lock is held leaves plain values behind, so a poisoned lock is as good as any.
        get(&self.settings.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Takes over the fields that are present. Empty defaults are ignored (contract: envd, section 7).
    pub fn apply(&self, change: Settings) {
        let Settings { env_vars, access_token, token_required, default_user, default_workdir } = change;
        let mut settings = self.settings.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        settings.env_vars = env_vars.or(settings.env_vars.take());
        settings.access_token = access_token.or(settings.access_token.take());
        settings.token_required = token_required.or(settings.token_required);
        settings.default_user = default_user.filter(|u| !u.is_empty()).or(settings.default_user.take());
        settings.default_workdir =
            default_workdir.filter(|d| !d.is_empty()).or(settings.default_workdir.take());
    }

    /// The token, for checking signatures made with it.
    pub fn access_token(&self) -> Option<Secret> {
        self.read(|s| s.access_token.clone())
    }

    /// Whether requests need the token.
    pub fn access(&self) -> Access {
        self.read(|s| if s.token_required == Some(false) { Access::Optional } else { Access::Required })
    }

    /// Compares the value of `X-Access-Token`, in constant time. An empty header counts as missing.
    pub fn check_token(&self, presented: Option<&str>) -> TokenCheck {
        self.read(|s| match (&s.access_token, presented.filter(|p| !p.is_empty())) {
            (None, _) => TokenCheck::Open,
            (Some(_), None) => TokenCheck::Missing,
            (Some(token), Some(presented)) if token.matches(presented) => TokenCheck::Valid,
            (Some(_), Some(_)) => TokenCheck::Wrong,
        })
    }

    /// All global variables: the user's set, then what the daemon sets and nobody can change.
    pub fn variables(&self) -> BTreeMap<String, String> {
        let mut all = self.read(|s| s.env_vars.clone()).unwrap_or_default();
        all.insert("E2B_SANDBOX".into(), "true".into());
        if let Some(identity) = self.identity.get() {
            all.insert("E2B_SANDBOX_ID".into(), identity.sandbox_id.clone());
            all.insert("E2B_TEMPLATE_ID".into(), identity.template_id.clone());
            all.insert("E2B_EVENTS_ADDRESS".into(), format!("http://{}", crate::EVENTS_ADDRESS));
        }
        all
    }

    /// User of requests that name none.
    pub fn default_user(&self) -> String {
        self.read(|s| s.default_user.clone()).unwrap_or_else(|| FIRST_DEFAULT_USER.into())
    }

    /// Directory of requests that name none; home when absent.
    pub fn default_workdir(&self) -> Option<String> {
        self.read(|s| s.default_workdir.clone())
    }

    /// The account called `name`, or the default user's when `name` is empty or absent. An unknown one is
    /// `unauthenticated`.
    pub fn account(&self, name: Option<&str>) -> Result<Account> {
        let default = self.default_user();
        let name = name.filter(|n| !n.is_empty()).unwrap_or(&default);
        let accounts = Accounts::load().map_err(|e| Error::internal(e.to_string()))?;
        accounts.lookup(name).ok_or_else(|| Error::unauthenticated(format!("invalid username: `{name}`")))
    }
}

/// What a handler knows of the request besides its message.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// The daemon's state.
    pub state: SharedState,
    /// The account named in `Authorization`; absent when none is.
    pub named: Option<Account>,
    /// When the client stops waiting. The RPC layer ends the answer then; only Start looks further.
    pub deadline: Option<Instant>,
    /// How long a stream may stay silent.
    pub keepalive: Duration,
    /// Whether the client is one that breaks on fields it does not know (contract: envd, section 1.1, legacy header).
    pub legacy: bool,
}

impl RequestContext {
    /// The account the request acts for: the one it names, else the default user's.
    pub fn account(&self) -> Result<Account> {
        match &self.named {
            Some(account) => Ok(account.clone()),
            None => self.state.account(None),
        }
    }

    /// Resolves a path of the request for the account it acts for.
    pub fn resolve(&self, path: &str) -> Result<String> {
        path::resolve(path, &self.account()?, self.state.default_workdir().as_deref())
    }
}

impl<S: Sync> FromRequestParts<S> for RequestContext {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> std::result::Result<Self, StatusCode> {
        // The pipeline puts it there before any route is chosen.
        parts.extensions.get::<Self>().cloned().ok_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}
