//! Copies files out of a sandbox (contract: envd, section 4).

use sandcove_wire::boot::AGENT_PORT;
use tokio::io::AsyncWrite;

use crate::body;
use crate::error::Result;
use crate::sandbox::Sandbox;

impl Sandbox {
    /// Copies a file of the sandbox to `out`, as it arrives; as `user` or else the default user.
    ///
    /// # Errors
    /// If there is no such file, or `out` cannot be written.
    pub async fn download(
        &self,
        path: &str,
        user: Option<&str>,
        out: &mut (impl AsyncWrite + Unpin),
    ) -> Result<()> {
        let body = self.open_file(path, user).await?.into_body();
        body::copy(body, self.url(AGENT_PORT, "/files"), out, |_| ()).await
    }
}
