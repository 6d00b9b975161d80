//! Copies files out of a sandbox (contract: envd, section 4).

use http_body_util::BodyExt;
use sandcove_wire::boot::AGENT_PORT;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::error::{Error, Result};
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
        let unreachable = |cause: Box<dyn std::error::Error + Send + Sync>| Error::Unreachable {
            url: self.url(AGENT_PORT, "/files"),
            cause,
        };
        let mut body = self.open_file(path, user).await?.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| unreachable(error.into()))?;
            if let Ok(data) = frame.into_data() {
                out.write_all(&data).await.map_err(Error::Output)?;
            }
        }
        out.flush().await.map_err(Error::Output)
    }
}
