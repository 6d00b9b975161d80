//! `POST /files` (contract: envd, section 4).

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use sandcove_wire::signature::Operation;
use serde::Serialize;

use super::auth::authorize;
use super::error::{Error, Result};
use super::multipart::Multipart;
use super::place::{follow_links, place};
use super::query::FilesQuery;
use super::receive::{Received, receive};
use super::{body, metadata_headers};
use crate::account::Account;
use crate::filesystem::directories::{self, Owner};
use crate::filesystem::entry::base_name;
use crate::filesystem::metadata::Metadata;
use crate::path;
use crate::state::RequestContext;

/// A file as the answer shows it. The oldest clients fail on any further key.
#[derive(Debug, Serialize)]
pub(super) struct Written {
    name: String,
    path: String,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: Metadata,
}

impl Written {
    pub(super) fn new(path: String, metadata: Metadata) -> Self {
        Self { name: base_name(Path::new(&path)), path, r#type: "file", metadata }
    }
}

/// Answers an upload.
pub(super) async fn handle(context: RequestContext, query: FilesQuery, request: Request<Body>) -> Response {
    match upload(context, query, request).await {
        Ok(written) => Json(written).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn upload(context: RequestContext, query: FilesQuery, request: Request<Body>) -> Result<Vec<Written>> {
    let (parts, body) = request.into_parts();
    let body = body::open(&parts.headers, body)?;
    authorize(&context.state, &parts.headers, &query, Operation::Write)?;
    let account = context.state.account(query.username.as_deref())?;
    let uploads = Uploads {
        owner: Owner::from(&account),
        metadata: metadata_headers::read(&parts.headers)?,
        workdir: context.state.default_workdir(),
        account,
    };

    let path = query.path.filter(|path| !path.is_empty());
    let content_type = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    match media_type(content_type).as_slice() {
        b"application/octet-stream" => {
            let path = path.ok_or_else(|| Error::bad_request("missing path query parameter"))?;
            Ok(vec![uploads.store(uploads.resolve(&path)?, body).await?])
        }
        kind if kind.starts_with(b"multipart/") => {
            uploads.store_parts(path, Multipart::new(content_type, body)?).await
        }
        kind => {
            let kind = String::from_utf8_lossy(kind);
            Err(Error::bad_request(format!(
                "unsupported Content-Type `{kind}`: supported are application/octet-stream and multipart"
            )))
        }
    }
}

fn media_type(content_type: &[u8]) -> Vec<u8> {
    let end = content_type.iter().position(|b| *b == b';').unwrap_or(content_type.len());
    content_type[..end].trim_ascii().to_ascii_lowercase()
}

/// The settings that all files of one request share.
struct Uploads {
    account: Account,
    owner: Owner,
    workdir: Option<String>,
    metadata: Metadata,
}

impl Uploads {
    fn resolve(&self, path: &str) -> Result<String> {
        Ok(path::resolve(path, &self.account, self.workdir.as_deref())?)
    }

    async fn store_parts(&self, path: Option<String>, mut multipart: Multipart) -> Result<Vec<Written>> {
        let mut written = Vec::new();
        let mut targets = HashSet::new();
        while let Some(mut part) = multipart.next().await? {
            if !part.is_called("file") {
                while part.next().await.transpose()?.is_some() {}
                continue;
            }
            let target = match &path {
                Some(path) => self.resolve(path)?,
                None => {
                    let name = part.filename().filter(|name| !name.is_empty());
                    let name = name
                        .ok_or_else(|| Error::bad_request("a part has no filename, nor the query a path"))?;
                    let name = String::from_utf8(name)
                        .map_err(|e| Error::bad_request(format!("filename is not UTF-8: {e}")))?;
                    self.resolve(&name)?
                }
            };
            if !targets.insert(path::clean(&target)) {
                return Err(Error::bad_request(format!("two files of the upload go to '{target}'")));
            }
            written.push(self.store(target, part).await?);
        }
        Ok(written)
    }

    /// Receives one file and puts it in place.
    async fn store(
        &self,
        target: String,
        body: impl Stream<Item = Result<Bytes>> + Unpin,
    ) -> Result<Written> {
        let owner = self.owner;
        let prepared = target.clone();
        let near = blocking(move || prepare(Path::new(&prepared), owner)).await?;
        let received: Received = receive(body, Path::new(&near)).await?;
        let metadata = self.metadata.clone();
        blocking(move || {
            let kept = place(received, Path::new(&target), owner, &metadata)
                .map_err(|e| failed(Path::new(&target), &e))?;
            Ok(Written::new(target, kept))
        })
        .await
    }
}

/// Checks `target` before anything is received, and creates the directories above it. Returns the parent directory.
fn prepare(target: &Path, owner: Owner) -> Result<std::path::PathBuf> {
    let target = follow_links(target).map_err(|e| failed(target, &e))?;
    refuse_directory(&target)?;
    let parent = target.parent().unwrap_or(Path::new("/"));
    directories::create_all(parent, owner)
        .map_err(|e| Error::io(format_args!("failed to create directory '{}'", parent.display()), &e))?;
    Ok(parent.to_owned())
}

/// Refuses a target that is a directory, or that names one by a slash at its end, whether it is there or not.
pub(super) fn refuse_directory(target: &Path) -> Result<()> {
    if target.as_os_str().as_bytes().ends_with(b"/") || fs::metadata(target).is_ok_and(|found| found.is_dir())
    {
        return Err(Error::bad_request(format!("path '{}' is a directory", target.display())));
    }
    Ok(())
}

fn failed(target: &Path, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::IsADirectory {
        return Error::bad_request(format!("path '{}' is a directory", target.display()));
    }
    Error::io(format_args!("failed to write '{}'", target.display()), error)
}

/// Runs `work` on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| {
        Err(Error::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the work did not finish: {e}")))
    })
}
