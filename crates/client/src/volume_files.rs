//! Files of a volume, without a sandbox (contract: control-plane, section 11).

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Response};
use hyper::body::Incoming;
use sandcove_wire::api::volume::{Entry, EntryUpdate, VolumeAndToken};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::body;
use crate::error::{Error, Result};
use crate::server::{Client, segment, sensitive};
use crate::transport::Transport;
use crate::upload::{RequestBody, streamed, whole};

/// A handle for the files of a volume, which expires with its token.
#[derive(Clone, Debug)]
pub struct VolumeFiles {
    transport: Transport,
    base: String,
    token: HeaderValue,
}

impl Client {
    /// A handle for the files of a volume, with the token of a [created](Self::create_volume) or [looked up](Self::volume) one.
    ///
    /// # Errors
    /// [`Error::Address`] if the token is invalid.
    pub fn volume_files(&self, volume: &VolumeAndToken) -> Result<VolumeFiles> {
        let server = match volume.domain.as_deref() {
            Some(domain) if !domain.is_empty() => format!("https://api.{domain}"),
            _ => self.url().to_owned(),
        };
        let token = sensitive(&server, &format!("Bearer {}", volume.token.expose()))?;
        let base = format!("{server}/volumecontent/{}", segment(&volume.volume_id));
        Ok(VolumeFiles { transport: self.transport.clone(), base, token })
    }
}

impl VolumeFiles {
    /// The entry at an absolute path; `None` if there is nothing.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn stat(&self, path: &str) -> Result<Option<Entry>> {
        match self.json(Method::GET, "path", path, "", Bytes::new()).await {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The entries of a directory, to a depth.
    ///
    /// # Errors
    /// If the path is not that of a directory.
    pub async fn list(&self, path: &str, depth: u32) -> Result<Vec<Entry>> {
        self.json(Method::GET, "dir", path, &format!("&depth={depth}"), Bytes::new()).await
    }

    /// Creates a directory, and missing ones above it.
    ///
    /// # Errors
    /// If something else is at the path, or the volume is full.
    pub async fn make_directory(&self, path: &str) -> Result<Entry> {
        self.json(Method::POST, "dir", path, "&force=true", Bytes::new()).await
    }

    /// Changes the owner or the permissions of what is at a path.
    ///
    /// # Errors
    /// If there is nothing, or a value is out of range.
    pub async fn update(&self, path: &str, update: &EntryUpdate) -> Result<Entry> {
        let body = serde_json::to_vec(update).map_err(|error| self.malformed("path", &error))?;
        self.json(Method::PATCH, "path", path, "", body.into()).await
    }

    /// Removes a file, or a directory with everything in it; false if there is nothing.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn remove(&self, path: &str) -> Result<bool> {
        match self.send(Method::DELETE, "path", path, "", whole(Bytes::new())).await {
            Ok(_) => Ok(true),
            Err(error) if error.status() == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Copies a file of the volume to `out`, as it arrives.
    ///
    /// # Errors
    /// If there is no such file, or `out` cannot be written.
    pub async fn download(&self, path: &str, out: &mut (impl AsyncWrite + Unpin)) -> Result<()> {
        let body = self.send(Method::GET, "file", path, "", whole(Bytes::new())).await?.into_body();
        body::copy(body, format!("{}/file", self.base), out, |_| ()).await
    }

    /// Writes a file with all that `source` has, `size` bytes if that is known, and replaces one that is there.
    ///
    /// # Errors
    /// If `source` cannot be read, or the file cannot be written.
    pub async fn upload(
        &self,
        path: &str,
        source: impl AsyncRead + Send + Unpin + 'static,
        size: Option<u64>,
    ) -> Result<Entry> {
        let answer = self.send(Method::PUT, "file", path, "&force=true", streamed(source, size)).await?;
        self.read("file", answer).await
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        call: &str,
        path: &str,
        more: &str,
        body: Bytes,
    ) -> Result<T> {
        let answer = self.send(method, call, path, more, whole(body)).await?;
        self.read(call, answer).await
    }

    async fn send(
        &self,
        method: Method,
        call: &str,
        path: &str,
        more: &str,
        body: RequestBody,
    ) -> Result<Response<Incoming>> {
        let kind = match call {
            "file" => "application/octet-stream",
            _ => "application/json",
        };
        let headers: [(HeaderName, HeaderValue); 2] =
            [(AUTHORIZATION, self.token.clone()), (CONTENT_TYPE, HeaderValue::from_static(kind))];
        let target = format!("/{call}?path={}{more}", segment(path));
        self.transport.send_to(&self.base, method, &target, &headers, body).await
    }

    async fn read<T: DeserializeOwned>(&self, call: &str, answer: Response<Incoming>) -> Result<T> {
        let bytes = body::whole(answer.into_body(), format!("{}/{call}", self.base)).await?;
        serde_json::from_slice(&bytes).map_err(|error| self.malformed(call, &error))
    }

    fn malformed(&self, call: &str, error: &serde_json::Error) -> Error {
        Error::Malformed { url: format!("{}/{call}", self.base), reason: error.to_string() }
    }
}
