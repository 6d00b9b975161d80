//! Calls for the files of a volume (contract: control-plane, section 11). The token of a request is for one volume only.

use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use sandcove_host::VolumeFiles;
use sandcove_image::files::{self, Attributes, Entry, EntryKind, Removal};
use sandcove_wire::api::volume as wire;
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;
use uuid::Uuid;

use super::auth::bearer;
use super::body::{self, Optional};
use super::error::StringCoded;
use super::params::{Id, Query, invalid};
use crate::memory::Memory;
use crate::state::{App, UPLOAD_TIMEOUT};
use crate::{Error, Result};

/// Maximum number of levels below a directory that a list shows.
const MAX_DEPTH: i64 = 100;

type ContentResult<T> = std::result::Result<T, StringCoded>;

/// The volume of an authorized request, and the path in it.
pub(super) struct Opened {
    id: Uuid,
    team: Uuid,
    volume: VolumeFiles,
    path: String,
    query: Query,
}

impl FromRequestParts<App> for Opened {
    type Rejection = StringCoded;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> ContentResult<Self> {
        let token = bearer(&parts.headers)
            .ok_or(Error::NoCredentials("the token of the volume as a bearer token"))?
            .to_owned();
        let Id(id) = Id::from_request_parts(parts, app).await?;
        if !app.volumes().opens(&token, id) {
            return Err(Error::MalformedCredential("the token is not valid for this volume").into());
        }
        let query = Query::from_request_parts(parts, app).await?;
        let path = query.text("path").ok_or_else(|| invalid("path", "is required"))?.to_owned();
        let (volume, team) = app.volumes().open(id).await?;
        if let Some(memory) = parts.extensions.get::<Memory>() {
            memory.belongs_to(team);
        }
        Ok(Self { id, team, volume, path, query })
    }
}

impl Opened {
    fn attributes(&self) -> Result<Attributes> {
        let number = |name: &str| self.query.integer(name);
        attributes(number("uid")?, number("gid")?, number("mode")?)
    }

    fn is_forced(&self) -> Result<bool> {
        match self.query.text("force") {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(_) => Err(invalid("force", "must be true or false")),
        }
    }
}

pub(super) async fn stat(opened: Opened) -> ContentResult<Response> {
    let entry = opened.volume.stat(&opened.path).await.map_err(Error::VolumeFiles)?;
    Ok(body::json(StatusCode::OK, &shown(entry)))
}

pub(super) async fn update(
    opened: Opened,
    body: Result<Optional<wire::EntryUpdate>>,
) -> ContentResult<Response> {
    let Optional(body) = body?;
    let attributes = attributes(body.uid, body.gid, body.mode)?;
    let entry = opened.volume.set_attributes(&opened.path, attributes).await;
    let entry = entry.map_err(Error::VolumeFiles)?;
    Ok(body::json(StatusCode::OK, &shown(entry)))
}

pub(super) async fn remove(State(app): State<App>, opened: Opened) -> ContentResult<StatusCode> {
    let unused = fresh_name();
    match opened.volume.remove(&opened.path, &unused).await.map_err(Error::VolumeFiles)? {
        Removal::Done => {}
        Removal::Unfinished => app.volumes().remove_later(&opened.id.to_string(), unused),
    }
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn list(opened: Opened) -> ContentResult<Response> {
    let depth = opened.query.integer_in("depth", 0..=MAX_DEPTH, 1)?.max(1);
    let depth = u32::try_from(depth).unwrap_or(1);
    let entries = opened.volume.list(&opened.path, depth).await.map_err(Error::VolumeFiles)?;
    Ok(body::json(StatusCode::OK, &entries.into_iter().map(shown).collect::<Vec<_>>()))
}

pub(super) async fn make_directory(opened: Opened) -> ContentResult<Response> {
    let (attributes, parents) = (opened.attributes()?, opened.is_forced()?);
    let entry = opened.volume.make_directory(&opened.path, attributes, parents).await;
    let entry = entry.map_err(Error::VolumeFiles)?;
    Ok(body::json(StatusCode::CREATED, &shown(entry)))
}

pub(super) async fn read(opened: Opened) -> ContentResult<Response> {
    let (file, size) = opened.volume.read(&opened.path).await.map_err(Error::VolumeFiles)?;
    // A file that grows during the answer is cut at its first size; one that shrinks ends the answer early, which clients
    // notice.
    let file = tokio::io::AsyncReadExt::take(tokio::fs::File::from_std(file), size);
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_LENGTH, HeaderValue::from(size)),
    ];
    Ok((headers, Body::from_stream(ReaderStream::with_capacity(file, 64 << 10))).into_response())
}

pub(super) async fn write(
    State(app): State<App>,
    opened: Opened,
    request: Request,
) -> ContentResult<Response> {
    let attributes = opened.attributes()?;
    opened.is_forced()?;
    let _turn = match app.uploads().take_upload(opened.team).await {
        Ok(turn) => turn,
        Err(error) => {
            body::discard(request.into_body()).await;
            return Err(error.into());
        }
    };
    let begun = opened.volume.begin_upload(&opened.path, attributes, &fresh_name()).await;
    let (upload, file) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            body::discard(request.into_body()).await;
            return Err(Error::VolumeFiles(error).into());
        }
    };
    let failed = |source| Error::from_volume("write a file", source);
    let mut file = tokio::fs::File::from_std(file);
    let mut chunks = request.into_body().into_data_stream();
    while let Some(chunk) =
        tokio::time::timeout(UPLOAD_TIMEOUT, chunks.next()).await.map_err(|_| Error::BodyAborted)?
    {
        file.write_all(&chunk.map_err(|_| Error::BodyAborted)?).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)?;
    drop(file);
    let entry = upload.finish().await.map_err(Error::VolumeFiles)?;
    Ok(body::json(StatusCode::CREATED, &shown(entry)))
}

/// A name that no file of the volume has.
fn fresh_name() -> String {
    Uuid::new_v4().to_string()
}

fn attributes(uid: Option<i64>, gid: Option<i64>, mode: Option<i64>) -> Result<Attributes> {
    let within = |name: &str, value: Option<i64>, max: u32| match value.map(u32::try_from) {
        None => Ok(None),
        Some(Ok(value)) if value <= max => Ok(Some(value)),
        Some(_) => Err(invalid(name, &format!("must be between 0 and {max}"))),
    };
    Ok(Attributes {
        uid: within("uid", uid, files::MAX_ID)?,
        gid: within("gid", gid, files::MAX_ID)?,
        mode: within("mode", mode, 0o7777)?,
    })
}

fn shown(entry: Entry) -> wire::Entry {
    let time = |nanos| Timestamp::from_nanosecond(nanos).unwrap_or_default();
    wire::Entry {
        name: entry.path.rsplit('/').next().unwrap_or_default().to_owned(),
        kind: match entry.kind {
            EntryKind::File => wire::EntryKind::File,
            EntryKind::Directory => wire::EntryKind::Directory,
            EntryKind::Symlink => wire::EntryKind::Symlink,
            EntryKind::Other => wire::EntryKind::Unknown,
        },
        size: entry.size,
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        atime: time(entry.accessed_ns),
        mtime: time(entry.modified_ns),
        ctime: time(entry.changed_ns),
        target: entry.target,
        path: entry.path,
    }
}
