//! One order: from the account to the certificate. What the next step needs is kept on disk before the step is taken, so that an order that
//! was interrupted goes on where it was.

use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeStatus, ChallengeType, Identifier, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use sandcove_isolate::crash;
use sandcove_wire::secret::Secret;

use crate::account::account;
use crate::settings::PERSISTENT;
use crate::state::{OrderFile, State};
use crate::transport::{Transport, TransportError};
use crate::{Acme, Check, Error, Zone};

/// How long the authority may take for its checks, and for the certificate.
const CHECKING: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(180));

/// The means of an order.
pub(crate) struct Orders<'a> {
    pub(crate) domain: &'a str,
    pub(crate) acme: &'a Acme,
    pub(crate) state: &'a State,
    pub(crate) zone: &'a Zone,
}

impl Orders<'_> {
    /// Whether an order was interrupted that can go on.
    pub(crate) fn is_open(&self) -> Result<bool, Error> {
        Ok(self.kept()?.is_some())
    }

    fn kept(&self) -> Result<Option<OrderFile>, Error> {
        let is_ours =
            |order: &OrderFile| order.directory == self.acme.directory && order.domain == self.domain;
        Ok(self.state.order()?.filter(is_ours))
    }

    /// Goes on with an interrupted order, or makes one; returns the certificate with its chain and its key, which are kept. `count` is
    /// called before an order is made.
    pub(crate) async fn obtain(&self, count: impl FnOnce() -> Result<(), Error>) -> Result<Vec<u8>, Error> {
        let account = account(self.acme, self.state).await?;
        crash::point("acme.account");
        let record = match self.acme.check {
            Check::Dns => None,
            Check::DnsPersist => Some(self.record(&account).await?),
        };
        let obtained = self.with_account(&account, count).await;
        obtained.map_err(|error| match error {
            Error::NotChecked { name, reason, .. } => Error::NotChecked { name, reason, record },
            error => error,
        })
    }

    /// The record by which the domain says that the account may have certificates for it and all names below it.
    async fn record(&self, account: &Account) -> Result<String, Error> {
        let unreachable = |error: TransportError| Error::Unreachable {
            directory: self.acme.directory.clone(),
            reason: error.to_string(),
        };
        let transport = Transport::new(self.acme.roots.as_deref()).map_err(unreachable)?;
        let issuer = transport.issuer(&self.acme.directory).await.map_err(unreachable)?;
        let value = format!("{issuer}; accounturi={}; policy=wildcard", account.id());
        let record = format!("{PERSISTENT}.{}. TXT \"{value}\"", self.domain);
        tracing::info!("the authority looks for the record `{record}` in the DNS; it is added once");
        Ok(record)
    }

    async fn with_account(
        &self,
        account: &Account,
        count: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Vec<u8>, Error> {
        let (order, key) = match self.resumed(account).await? {
            Some((order, key)) => match self.complete(order, &key).await {
                Ok(issued) => return self.keep(&issued, &key),
                Err(error) if error.is_passing() => return Err(error),
                // The checks came while the server was away, perhaps.
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "an interrupted order failed; a new one is made"
                    );
                    self.state.forget_order()?;
                    count()?;
                    self.begin(account).await?
                }
            },
            None => {
                count()?;
                self.begin(account).await?
            }
        };
        let issued = self.complete(order, &key).await;
        // What the authority refuses it will refuse again.
        if issued.as_ref().is_err_and(|error| !error.is_passing()) {
            self.state.forget_order()?;
        }
        self.keep(&issued?, &key)
    }

    fn keep(&self, issued: &str, key: &Secret) -> Result<Vec<u8>, Error> {
        let pem = [issued.as_bytes(), b"\n", key.expose().as_bytes()].concat();
        self.state.keep_certificate(&pem)?;
        crash::point("acme.kept");
        self.state.forget_order()?;
        Ok(pem)
    }

    async fn resumed(&self, account: &Account) -> Result<Option<(Order, Secret)>, Error> {
        let Some(kept) = self.kept()? else { return Ok(None) };
        match account.order(kept.url).await {
            Ok(mut order) => {
                if order.state().status != OrderStatus::Invalid {
                    return Ok(Some((order, kept.key)));
                }
            }
            // Expired, or of an account that the authority has forgotten.
            Err(instant_acme::Error::Api(_)) => {}
            Err(error) => return Err(Error::of(&self.acme.directory, error)),
        }
        self.state.forget_order()?;
        Ok(None)
    }

    async fn begin(&self, account: &Account) -> Result<(Order, Secret), Error> {
        let names = self.names().map(Identifier::Dns);
        let order = account
            .new_order(&NewOrder::new(&names))
            .await
            .map_err(|error| Error::of(&self.acme.directory, error))?;
        let key = Secret::new(KeyPair::generate().map_err(Error::Request)?.serialize_pem());
        self.state.keep_order(&OrderFile {
            directory: self.acme.directory.clone(),
            domain: self.domain.to_owned(),
            url: order.url().to_owned(),
            key: key.clone(),
        })?;
        crash::point("acme.ordered");
        Ok((order, key))
    }

    fn names(&self) -> [String; 2] {
        [self.domain.to_owned(), format!("*.{}", self.domain)]
    }

    async fn complete(&self, order: Order, key: &Secret) -> Result<String, Error> {
        let issued = self.take_steps(order, key).await;
        self.zone.set_challenges(Vec::new());
        issued
    }

    async fn take_steps(&self, mut order: Order, key: &Secret) -> Result<String, Error> {
        let refused = |error| Error::of(&self.acme.directory, error);
        if order.state().status == OrderStatus::Pending {
            self.prove(&mut order).await?;
        }
        crash::point("acme.proven");
        if order.state().status == OrderStatus::Ready {
            let key = KeyPair::from_pem(key.expose()).map_err(Error::Request)?;
            let mut params = CertificateParams::new(self.names()).map_err(Error::Request)?;
            params.distinguished_name = DistinguishedName::new();
            let request = params.serialize_request(&key).map_err(Error::Request)?;
            order.finalize_csr(request.der()).await.map_err(refused)?;
        }
        crash::point("acme.finalized");
        order.poll_certificate(&CHECKING).await.map_err(refused)
    }

    /// Shows the authority that the domain leads to this server.
    async fn prove(&self, order: &mut Order) -> Result<(), Error> {
        let refused = |error| Error::of(&self.acme.directory, error);
        let kind = || match self.acme.check {
            Check::Dns => ChallengeType::Dns01,
            Check::DnsPersist => ChallengeType::Unknown("dns-persist-01".to_owned()),
        };
        let mut values = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(refused)?;
            if authorization.status == AuthorizationStatus::Pending {
                let offered =
                    || Error::Refused(format!("it does not offer to check the domain by {:?}", kind()));
                let challenge = authorization.challenge(kind()).ok_or_else(offered)?;
                if self.acme.check == Check::Dns {
                    values.push(challenge.key_authorization().dns_value());
                }
            }
        }
        // Both names of the certificate are checked by one record, with a value for each.
        self.zone.set_challenges(values);
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(refused)?;
            let name = authorization.identifier().to_string();
            if let Some(mut challenge) = authorization.challenge(kind())
                && challenge.status == ChallengeStatus::Pending
            {
                challenge.set_ready().await.map_err(|error| match error {
                    // An authority may check at once.
                    instant_acme::Error::Api(problem) => {
                        Error::NotChecked { name, reason: Error::said(&problem), record: None }
                    }
                    error => refused(error),
                })?;
            }
        }
        crash::point("acme.announced");
        match order.poll_ready(&CHECKING).await {
            Ok(OrderStatus::Ready) => Ok(()),
            Ok(_) | Err(instant_acme::Error::Api(_)) => Err(self.reason(order).await),
            Err(error) => Err(refused(error)),
        }
    }

    /// The failure that the authority found when it checked the domain.
    async fn reason(&self, order: &mut Order) -> Error {
        let mut authorizations = order.authorizations();
        while let Some(Ok(authorization)) = authorizations.next().await {
            if let Some(problem) = authorization.challenges.iter().find_map(|one| one.error.as_ref()) {
                return Error::NotChecked {
                    name: authorization.identifier().to_string(),
                    reason: Error::said(problem),
                    record: None,
                };
            }
        }
        Error::Refused("it took the order back and gave no reason".to_owned())
    }
}
