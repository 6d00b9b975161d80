//! The state that all requests share: the settings that the host may change, and the account a request acts for.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::StatusCode;
use http::request::Parts;
use sandcove_wire::boot::{METADATA_ADDRESS, Settings};
use sandcove_wire::secret::Secret;
use tokio::time::Instant;

use crate::account::{Account, Accounts};
use crate::error::{Error, Result};
use crate::{path, trust};

/// User of requests that name none, until settings name another.
const FIRST_DEFAULT_USER: &str = "root";

/// A handle to the state of the daemon; cheap to clone.
pub type SharedState = Arc<State>;

/// The identity of the sandbox. It never changes once it is assigned, unless the memory of this process begins another sandbox.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// Value of `E2B_SANDBOX_ID`.
    pub sandbox_id: String,
    /// Value of `E2B_TEMPLATE_ID`.
    pub template_id: String,
}

/// How a presented token compares with the one that is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenCheck {
    /// No token is set, so every request is let in.
    Open,
    /// The request carries the token.
    Valid,
    /// The request carries no token. Only an [`Access::Required`] endpoint refuses it.
    Missing,
    /// The request carries another token.
    Wrong,
}

impl TokenCheck {
    /// Whether the request is let in.
    pub fn allows(self, access: Access) -> bool {
        match self {
            Self::Open | Self::Valid => true,
            Self::Missing => access == Access::Optional,
            Self::Wrong => false,
        }
    }
}

/// Whether an endpoint lets in requests without a token although one is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Every request needs the token.
    Required,
    /// A wrong token is refused, a missing one is not.
    Optional,
}

/// The state of the daemon. Locks are held only while values are copied.
#[derive(Debug, Default)]
pub struct State {
    identity: RwLock<Option<Identity>>,
    settings: RwLock<Settings>,
}

impl State {
    /// Makes the state of a sandbox without an identity.
    pub fn new(settings: Settings) -> SharedState {
        Arc::new(Self { identity: RwLock::default(), settings: RwLock::new(settings) })
    }

    /// Sets the identity of this sandbox.
    pub fn assign(&self, identity: Identity) {
        *self.identity.write().unwrap_or_else(PoisonError::into_inner) = Some(identity);
    }

    /// Makes this the state of another sandbox, with settings of its own. What programs trust stays: it is the host's.
    pub fn renew(&self, identity: Identity, settings: Settings) {
        let mut present = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        let ca_bundle = settings.ca_bundle.or(present.ca_bundle.take());
        *present = Settings { ca_bundle, ..settings };
        drop(present);
        self.assign(identity);
    }

    /// The identity; none when run by hand, and before one is assigned.
    pub fn identity(&self) -> Option<Identity> {
        self.identity.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Value of `E2B_SANDBOX_ID`; none without an identity.
    pub fn sandbox_id(&self) -> Option<String> {
        self.identity().map(|identity| identity.sandbox_id)
    }

    fn read<T>(&self, get: impl FnOnce(&Settings) -> T) -> T {
        // A panic while the lock is held leaves valid values behind, so a poisoned lock can be used.
        get(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Applies the fields that are present. Empty defaults are ignored (contract: envd, section 7).
    pub fn apply(&self, change: Settings) {
        let Settings {
            env_vars,
            access_token,
            token_required,
            default_user,
            default_workdir,
            ends_together,
            ca_bundle,
        } = change;
        let mut settings = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        settings.env_vars = env_vars.or(settings.env_vars.take());
        settings.access_token = access_token.or(settings.access_token.take());
        settings.token_required = token_required.or(settings.token_required);
        settings.default_user = default_user.filter(|u| !u.is_empty()).or(settings.default_user.take());
        settings.default_workdir =
            default_workdir.filter(|d| !d.is_empty()).or(settings.default_workdir.take());
        settings.ends_together = ends_together.or(settings.ends_together);
        settings.ca_bundle = ca_bundle.or(settings.ca_bundle.take());
    }

    /// The access token, for checking signatures made with it.
    pub fn access_token(&self) -> Option<Secret> {
        self.read(|s| s.access_token.clone())
    }

    /// Whether requests need the access token.
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

    /// All global variables: those of the user, and those that the daemon sets and nobody can change.
    pub fn variables(&self) -> BTreeMap<String, String> {
        let (own, trusts) = self.read(|s| (s.env_vars.clone(), s.ca_bundle.is_some()));
        let mut all = own.unwrap_or_default();
        for (name, value) in trust::VARIABLES.into_iter().filter(|_| trusts) {
            // A user may have others in mind.
            all.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        all.insert("E2B_SANDBOX".into(), "true".into());
        if let Some(identity) = self.identity() {
            all.insert("E2B_SANDBOX_ID".into(), identity.sandbox_id);
            all.insert("E2B_TEMPLATE_ID".into(), identity.template_id);
            all.insert("E2B_EVENTS_ADDRESS".into(), format!("http://{METADATA_ADDRESS}"));
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

    /// Whether all processes end with the one that a client started.
    pub fn ends_together(&self) -> bool {
        self.read(|s| s.ends_together == Some(true))
    }

    /// The account called `name`, or that of the default user when `name` is empty or absent. An unknown name is an
    /// `unauthenticated` error.
    pub fn account(&self, name: Option<&str>) -> Result<Account> {
        let default = self.default_user();
        let name = name.filter(|n| !n.is_empty()).unwrap_or(&default);
        let accounts = Accounts::load().map_err(|e| Error::internal(e.to_string()))?;
        accounts.lookup(name).ok_or_else(|| Error::unauthenticated(format!("invalid username: `{name}`")))
    }
}

/// A request as its handler sees it, besides the message.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// State of the daemon.
    pub state: SharedState,
    /// Account named in `Authorization`, if any.
    pub named: Option<Account>,
    /// Time at which the client stops waiting. The RPC layer ends the answer then; only Start does more.
    pub deadline: Option<Instant>,
    /// Time without a message after which a stream sends a keepalive.
    pub keepalive: Duration,
    /// Whether the client fails on unknown fields (contract: envd, section 1.1, legacy header).
    pub legacy: bool,
}

impl RequestContext {
    /// The account that the request acts for: the one it names, or else that of the default user.
    pub fn account(&self) -> Result<Account> {
        match &self.named {
            Some(account) => Ok(account.clone()),
            None => self.state.account(None),
        }
    }

    /// Resolves a path in the request for the account that the request acts for.
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
