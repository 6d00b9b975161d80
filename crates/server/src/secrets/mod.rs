//! Secrets: values that the egress proxies put into requests of sandboxes (contract: control-plane, section 12). A value passes through
//! this process once, when a client sets it. The host process seals it, and this process cannot open it again.

use std::collections::BTreeMap;

use sandcove_host::Host;
use sandcove_isolate::{PublicKey, SealedSecret, Upstream};
use sandcove_wire::api::secret::{NewSecret, SecretUpdate};
use sandcove_wire::secret::Secret;
use serde_json::Value;

use crate::domain::egress_proxy::EgressProxy;
use crate::domain::limits::{self, SECRET_NAME, SECRET_VALUE, SECRETS};
use crate::domain::network::InvalidNetwork;
use crate::domain::secret::{SecretRecord, context};
use crate::domain::team::Team;
use crate::store::Store;
use crate::{Error, Result, clock, random};

/// The secrets of this server.
#[derive(Clone)]
pub(crate) struct Secrets {
    store: Store,
    host: Host,
}

impl Secrets {
    pub(crate) fn new(store: Store, host: Host) -> Self {
        Self { store, host }
    }

    /// Seals values anew that were sealed with a former key, which is needed no longer then: those of sandboxes were sealed when these were
    /// recovered.
    pub(crate) async fn renew(&self) -> Result<()> {
        for secret in self.store.all_secrets().await? {
            match self.host.renew_sealed(&secret.context(), &secret.sealed).await {
                Ok(None) => {}
                Ok(Some(sealed)) => self.store.reseal_secret(&secret, &sealed).await?,
                Err(error) => {
                    tracing::error!(
                        secret = secret.id,
                        error = &error as &dyn std::error::Error,
                        "the value of a secret cannot be opened: set it again"
                    );
                }
            }
        }
        self.host.settle_keys().await.map_err(Error::Seal)
    }

    /// The secrets of a team.
    pub(crate) async fn list(&self, team: &Team) -> Result<Vec<SecretRecord>> {
        self.store.secrets(team).await
    }

    /// A secret of a team, by id or name.
    pub(crate) async fn get(&self, team: &Team, reference: &str) -> Result<SecretRecord> {
        self.store.secret(team.id, &reference.to_ascii_lowercase()).await?.ok_or(Error::SecretNotFound)
    }

    /// Creates a secret.
    pub(crate) async fn create(&self, team: &Team, new: NewSecret) -> Result<SecretRecord> {
        let name = new.name.to_ascii_lowercase();
        let is_name = (1..=SECRET_NAME).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
            && !name.starts_with(SecretRecord::PREFIX);
        if !is_name {
            return Err(Error::InvalidRequest("the name of a secret".into()));
        }
        let (id, now) = (random::secret_id(), clock::now());
        let secret = SecretRecord {
            sealed: self.seal(&context(team.id, &id), &new.value).await?,
            id,
            team: team.id,
            name,
            version: 1,
            metadata: checked(new.metadata.unwrap_or_default())?,
            created_at: now,
            updated_at: now,
        };
        if self.store.insert_secret(&secret, SECRETS).await? {
            return Ok(secret);
        }
        let is_taken = self.store.secret(team.id, &secret.name).await?.is_some();
        Err(if is_taken { Error::SecretConflict } else { Error::TooManySecrets })
    }

    /// Gives a secret another value.
    pub(crate) async fn update(
        &self,
        team: &Team,
        reference: &str,
        update: SecretUpdate,
    ) -> Result<SecretRecord> {
        let secret = self.get(team, reference).await?;
        let metadata = checked(update.metadata.unwrap_or_else(|| secret.metadata.clone()))?;
        let sealed = self.seal(&secret.context(), &update.value).await?;
        if !self.store.update_secret(&secret, &sealed, &metadata).await? {
            return Err(Error::SecretConflict);
        }
        self.get(team, &secret.id).await
    }

    /// Deletes a secret.
    pub(crate) async fn delete(&self, team: &Team, reference: &str) -> Result<()> {
        let is_deleted = self.store.delete_secret(team, &reference.to_ascii_lowercase()).await?;
        if is_deleted { Ok(()) } else { Err(Error::SecretNotFound) }
    }

    /// The proxy of a sandbox's connections that a client names, with its password sealed for the team.
    pub(crate) async fn proxy(&self, team: &Team, given: Option<Value>) -> Result<Option<Upstream>> {
        let Some(proxy) = EgressProxy::new(given.unwrap_or_default())? else { return Ok(None) };
        if !self.host.is_reachable(proxy.host()).await.map_err(Error::Seal)? {
            let reason = format!("'{}' does not resolve to public addresses", proxy.host());
            return Err(InvalidNetwork::EgressProxy(reason).into());
        }
        let password = match proxy.password() {
            Some(password) => {
                let context = context(team.id, "egress-proxy");
                let sealed = self.host.seal(&context, password).await.map_err(Error::Seal)?;
                Some(SealedSecret { context, sealed })
            }
            None => None,
        };
        Ok(Some(proxy.sealed(password)))
    }

    /// The public keys that tokens of sandboxes are checked with, the current one first.
    pub(crate) async fn identity_keys(&self) -> Result<Vec<PublicKey>> {
        self.host.identity_keys().await.map_err(Error::Seal)
    }

    async fn seal(&self, context: &str, value: &Secret) -> Result<String> {
        let text = value.expose();
        // In a header, anything else would end it or be refused.
        if text.is_empty() || text.len() > SECRET_VALUE || text.chars().any(|c| c.is_control() && c != '\t') {
            return Err(Error::InvalidRequest("the value of a secret".into()));
        }
        self.host.seal(context, value).await.map_err(Error::Seal)
    }
}

fn checked(metadata: BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
    limits::check_secret_metadata(&metadata)?;
    Ok(metadata)
}
