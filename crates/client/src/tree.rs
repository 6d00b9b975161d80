//! Copies files out of a sandbox, as root (contract: envd, section 4).

use http_body_util::BodyExt;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::error::{Error, Result};
use crate::sandbox::Sandbox;

impl Sandbox {
    /// Copies a file of the sandbox to `out`, as it arrives.
    ///
    /// # Errors
    /// If there is no such file, or `out` cannot be written.
    pub async fn download(&self, path: &str, out: &mut (impl AsyncWrite + Unpin)) -> Result<()> {
        let unreachable = |cause: Box<dyn std::error::Error + Send + Sync>| Error::Unreachable {
            url: self.url("/files"),
            cause,
        };
        let mut body = self.open_file(path, Some("root")).await?.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| unreachable(error.into()))?;
            if let Ok(data) = frame.into_data() {
                out.write_all(&data).await.map_err(|error| unreachable(error.into()))?;
            }
        }
        out.flush().await.map_err(|error| unreachable(error.into()))
    }
}
