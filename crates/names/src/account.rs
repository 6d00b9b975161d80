//! The account at the authority. Its key is kept before the authority knows it, so that a server that is interrupted has no second one.

use instant_acme::{Account, Key};
use rcgen::KeyPair;
use sandcove_wire::secret::Secret;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::state::{AccountFile, State};
use crate::transport::Transport;
use crate::{Acme, Error};

/// Finds the account of the kept key, or makes one. The authority tells a key that it knows by itself.
pub(crate) async fn account(acme: &Acme, state: &State) -> Result<Account, Error> {
    let kept = state.account()?.filter(|kept| kept.directory == acme.directory);
    let pem = match kept {
        Some(kept) => kept.key,
        None => {
            let key = Secret::new(KeyPair::generate().map_err(Error::Request)?.serialize_pem());
            state.keep_account(&AccountFile { directory: acme.directory.clone(), key: key.clone() })?;
            key
        }
    };
    let unreachable = |reason: String| Error::Unreachable { directory: acme.directory.clone(), reason };
    let transport = Transport::new(acme.roots.as_deref()).map_err(|error| unreachable(error.to_string()))?;
    let read = PrivatePkcs8KeyDer::from_pem_slice(pem.expose().as_bytes()).map_err(|error| error.to_string());
    let key = read.map_err(unreachable)?;
    let own = Key::from_pkcs8_der(key.clone_key()).map_err(|error| Error::of(&acme.directory, error))?;
    let found = Account::builder_with_http(Box::new(transport))
        .create_from_key((own, PrivateKeyDer::Pkcs8(key)), acme.directory.clone())
        .await;
    found.map(|(account, _)| account).map_err(|error| Error::of(&acme.directory, error))
}
