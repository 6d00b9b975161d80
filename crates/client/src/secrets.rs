//! Secrets of a team (contract: control-plane, section 12).

use http::Method;
use sandcove_wire::api::secret::{NewSecret, SecretInfo, SecretUpdate};

use crate::error::Result;
use crate::server::{Client, segment};

impl Client {
    /// The secrets of the team, without their values.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn secrets(&self) -> Result<Vec<SecretInfo>> {
        self.pages("/secrets?limit=100").await
    }

    /// The secret with this id or name, without its value.
    ///
    /// # Errors
    /// If the server does not know the secret.
    pub async fn secret(&self, reference: &str) -> Result<SecretInfo> {
        self.json(Method::GET, &format!("/secrets/{}", segment(reference)), None::<&()>).await
    }

    /// Creates a secret.
    ///
    /// # Errors
    /// If the server refuses the name or the value, or has a secret of that name.
    pub async fn create_secret(&self, new: &NewSecret) -> Result<SecretInfo> {
        self.json(Method::POST, "/secrets", Some(new)).await
    }

    /// Gives the secret with this id or name another value.
    ///
    /// # Errors
    /// If the server refuses the value, or does not know the secret.
    pub async fn update_secret(&self, reference: &str, update: &SecretUpdate) -> Result<SecretInfo> {
        self.json(Method::POST, &format!("/secrets/{}", segment(reference)), Some(update)).await
    }

    /// Deletes the secret with this id or name; false if there is none.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn delete_secret(&self, reference: &str) -> Result<bool> {
        self.delete(&format!("/secrets/{}", segment(reference))).await
    }
}
