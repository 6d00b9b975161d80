//! Looks at directories of a sandbox, changes and watches them, as root or as another account (contract: envd, section 3).

use futures_util::Stream;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method};
use sandcove_wire::boot::AGENT_PORT;
use sandcove_wire::envd::filesystem::watch_dir_response::Event;
use sandcove_wire::envd::filesystem::{
    EntryInfo, FilesystemEvent, ListDirRequest, ListDirResponse, MakeDirRequest, MakeDirResponse,
    MoveRequest, MoveResponse, RemoveRequest, RemoveResponse, StatRequest, StatResponse, WatchDirRequest,
    WatchDirResponse,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::body::{Pieces, message};
use crate::connect::{self, basic};
use crate::error::{Error, Result};
use crate::sandbox::Sandbox;

/// A watch of a directory. Dropping it ends the watch.
pub struct Watch {
    pieces: Pieces,
}

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

    /// Creates a directory, and missing ones above it. One that exists stays as it is.
    ///
    /// # Errors
    /// If something else is at the path.
    pub async fn make_directory(&self, path: &str) -> Result<()> {
        let request = MakeDirRequest { path: path.to_owned() };
        match self.filesystem::<MakeDirResponse>("MakeDir", &request).await {
            Err(error) if error.status() == Some(409) && self.is_directory(path).await? => Ok(()),
            done => done.map(drop),
        }
    }

    /// Moves what is at a path to another one, and returns its entry there. Missing directories above the new path are created, and a file that
    /// is there is replaced.
    ///
    /// # Errors
    /// If there is nothing at the path, or it cannot be moved.
    pub async fn rename(&self, from: &str, to: &str) -> Result<EntryInfo> {
        let request = MoveRequest { source: from.to_owned(), destination: to.to_owned() };
        let moved: MoveResponse = self.filesystem("Move", &request).await?;
        moved.entry.ok_or_else(|| Error::Malformed {
            url: self.url(AGENT_PORT, "/filesystem.Filesystem/Move"),
            reason: "the moved entry is missing".to_owned(),
        })
    }

    /// Removes a file, or a directory with everything in it. A path where nothing is stays so.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub async fn remove(&self, path: &str) -> Result<()> {
        let request = RemoveRequest { path: path.to_owned() };
        match self.filesystem::<RemoveResponse>("Remove", &request).await {
            Err(error) if error.status() == Some(404) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Watches a directory, without those in it, and returns once changes are noticed. Events have the entry that changed.
    ///
    /// # Errors
    /// If the path is not that of a directory.
    pub async fn watch_directory(&self, path: &str) -> Result<Watch> {
        const PATH: &str = "/filesystem.Filesystem/WatchDir";
        let request =
            WatchDirRequest { path: path.to_owned(), include_entry: true, ..WatchDirRequest::default() };
        let body = connect::envelope(&request).map_err(|error| Error::Malformed {
            url: self.url(AGENT_PORT, PATH),
            reason: error.to_string(),
        })?;
        let headers = self.directory_headers("application/connect+json")?;
        let response = self.send(AGENT_PORT, Method::POST, PATH, headers, body).await?;
        let mut pieces = Pieces::new(response.into_body(), self.url(AGENT_PORT, PATH));
        while let Some(message) = connect::next::<WatchDirResponse>(&mut pieces).await? {
            if let Some(Event::Start(_)) = message.event {
                return Ok(Watch { pieces });
            }
        }
        Err(pieces.malformed("the start of the watch was not reported"))
    }

    /// Headers of a call about directories, which name the account of the handle.
    fn directory_headers(&self, kind: &'static str) -> Result<Vec<(HeaderName, HeaderValue)>> {
        Ok(vec![
            (CONTENT_TYPE, HeaderValue::from_static(kind)),
            (HeaderName::from_static("connect-protocol-version"), HeaderValue::from_static("1")),
            basic(self.directory_user(), &self.url(AGENT_PORT, "/filesystem.Filesystem"))?,
        ])
    }

    async fn is_directory(&self, path: &str) -> Result<bool> {
        use sandcove_wire::envd::filesystem::FileType;
        Ok(self.stat(path).await?.is_some_and(|entry| entry.r#type() == FileType::Directory))
    }

    async fn filesystem<T: DeserializeOwned>(&self, method: &str, request: &impl Serialize) -> Result<T> {
        let path = format!("/filesystem.Filesystem/{method}");
        let malformed = |error: serde_json::Error| Error::Malformed {
            url: self.url(AGENT_PORT, &path),
            reason: error.to_string(),
        };
        let body = serde_json::to_vec(request).map_err(malformed)?;
        let headers = self.directory_headers("application/json")?;
        let response = self.send(AGENT_PORT, Method::POST, &path, headers, body.into()).await?;
        message(response.into_body(), self.url(AGENT_PORT, &path)).await
    }
}

impl Watch {
    /// The changes that [`next`](Self::next) returns, as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Result<FilesystemEvent>> + Send {
        futures_util::stream::try_unfold(self, |mut watch| async move {
            Ok(watch.next().await?.map(|event| (event, watch)))
        })
    }

    /// Waits for the next change; `None` when the agent ended the watch.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn next(&mut self) -> Result<Option<FilesystemEvent>> {
        while let Some(message) = connect::next::<WatchDirResponse>(&mut self.pieces).await? {
            if let Some(Event::Filesystem(event)) = message.event {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}
