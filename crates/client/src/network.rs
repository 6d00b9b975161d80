//! The network rules of a running sandbox (contract: control-plane, section 6.13).

use http::Method;
use sandcove_wire::api::network::NetworkUpdate;
use sandcove_wire::id::SandboxId;

use crate::error::Result;
use crate::server::Client;

impl Client {
    /// Replaces the network rules of a running sandbox. Rules that the update does not have are gone.
    ///
    /// # Errors
    /// If the sandbox does not run, or a rule is invalid.
    pub async fn update_network(&self, id: &SandboxId, update: &NetworkUpdate) -> Result<()> {
        self.call(Method::PUT, &format!("/sandboxes/{id}/network"), Some(update)).await.map(drop)
    }
}
