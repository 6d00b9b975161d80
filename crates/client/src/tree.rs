//! Reads whole trees of files out of a sandbox, as root (contract: envd, sections 3 and 4).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method};
use http_body_util::BodyExt;
use sandcove_wire::boot::AGENT_PORT;
use sandcove_wire::envd::filesystem::{
    EntryInfo, ListDirRequest, ListDirResponse, StatRequest, StatResponse,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::error::{Error, Result};
use crate::files::percent_encoded;
use crate::sandbox::Sandbox;

impl Sandbox {
    /// The entry at an absolute path; `None` if there is nothing.
    ///
    /// # Errors
    /// If the agent does not answer.
    pub async fn stat(&self, path: &str) -> Result<Option<EntryInfo>> {
        let request = StatRequest { path: path.to_owned() };
        match self.filesystem::<StatResponse>("Stat", &request).await {
            Ok(response) => Ok(response.entry),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The entries of a directory, to a depth; directories come before what they hold.
    ///
    /// # Errors
    /// If the path is not that of a directory.
    pub async fn list_directory(&self, path: &str, depth: u32) -> Result<Vec<EntryInfo>> {
        let request = ListDirRequest { path: path.to_owned(), depth };
        Ok(self.filesystem::<ListDirResponse>("ListDir", &request).await?.entries)
    }

    /// Copies a file of the sandbox to `out`, as it arrives.
    ///
    /// # Errors
    /// If there is no such file, or `out` cannot be written.
    pub async fn download(&self, path: &str, out: &mut (impl AsyncWrite + Unpin)) -> Result<()> {
        let target = format!("/files?path={}&username=root", percent_encoded(path));
        let unreachable = |cause: Box<dyn std::error::Error + Send + Sync>| Error::Unreachable {
            url: self.url(&target),
            cause,
        };
        let response = self.send(AGENT_PORT, Method::GET, &target, Vec::new(), Bytes::new()).await?;
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| unreachable(error.into()))?;
            if let Ok(data) = frame.into_data() {
                out.write_all(&data).await.map_err(|error| unreachable(error.into()))?;
            }
        }
        out.flush().await.map_err(|error| unreachable(error.into()))
    }

    async fn filesystem<T: DeserializeOwned>(&self, method: &str, request: &impl Serialize) -> Result<T> {
        let path = format!("/filesystem.Filesystem/{method}");
        let malformed =
            |error: serde_json::Error| Error::Malformed { url: self.url(&path), reason: error.to_string() };
        let body = serde_json::to_vec(request).map_err(malformed)?;
        let root = HeaderValue::try_from(format!("Basic {}", STANDARD.encode("root:")))
            .map_err(|error| Error::Malformed { url: self.url(&path), reason: error.to_string() })?;
        let headers = vec![
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (HeaderName::from_static("connect-protocol-version"), HeaderValue::from_static("1")),
            (AUTHORIZATION, root),
        ];
        let response = self.send(AGENT_PORT, Method::POST, &path, headers, body.into()).await?;
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| Error::Unreachable { url: self.url(&path), cause: error.into() })?;
        serde_json::from_slice(&body.to_bytes()).map_err(malformed)
    }
}
