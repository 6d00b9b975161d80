//! Uploads of the files that `COPY` steps need (contract: templates, section 6.3).

use std::fmt::Display;
use std::io;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::{StatusCode, header};
use sandcove_wire::api::build as wire;
use uuid::Uuid;

use super::address::ApiUrl;
use super::auth::{Caller, may_act};
use super::body::{self, discard};
use super::builds::check_hash;
use super::measure::limit;
use super::params::{Path, Query};
use crate::domain::limits::FILE_SETS_MIB;
use crate::domain::reference::Reference;
use crate::domain::team::{Standing, Team};
use crate::state::{App, UPLOAD_TIMEOUT};
use crate::{Error, Result, clock};

/// Lifetime of a link, seconds.
const LINK_SECONDS: i64 = 30 * 60;
/// Bytes of an upload after which the room for it is looked at again.
const CHECK_INTERVAL: usize = 8 << 20;
/// Free space that uploads leave on the disk of the data directory, bytes; a twentieth of the disk when that is less.
const FREE_BYTES: u64 = 1 << 30;

/// Whether the server has a file set, and where to upload it. The link is given in any case: clients may want to upload a file
/// set again.
pub(super) async fn link(
    State(app): State<App>,
    Caller(team): Caller,
    Path((template, hash)): Path<(String, String)>,
    ApiUrl(url): ApiUrl,
) -> Result<Response> {
    check_hash(&hash)?;
    let reference: Reference = template.parse()?;
    // A template of another team is answered like one that does not exist.
    app.templates().owned(&team, &reference).await.map_err(|error| match error {
        Error::TemplateForbidden(_) => Error::TemplateNotFound(reference.to_string()),
        other => other,
    })?;
    let expiry = clock::now().as_second() + LINK_SECONDS;
    let token = app.upload_links().issue(team.id, &hash, expiry);
    let link = wire::UploadLink {
        present: app.builds().file_sets().has(team.id, &hash).await,
        url: Some(format!("{url}/upload/{}/{hash}?expires={expiry}&token={token}", team.id)),
        headers: None,
    };
    Ok(body::json(StatusCode::CREATED, &link))
}

/// Receives a file set. The link is the only credential.
pub(super) async fn receive(
    State(app): State<App>,
    Path((team, hash)): Path<(String, String)>,
    query: Query,
    request: Request,
) -> Result<StatusCode> {
    let length = length(&request);
    let (parts, body) = request.into_parts();
    let permitted = async {
        let team = permit(&app, &team, &hash, &query).await?;
        limit(&app, team.id, &parts)?;
        let turn = app.uploads().take_upload(team.id).await?;
        check_room(&app, &team, length).await?;
        Ok((team, turn))
    };
    let (team, _turn) = match permitted.await {
        Ok(permitted) => permitted,
        Err(error) => {
            discard(body).await;
            return Err(error);
        }
    };
    let pieces = pieces(app.clone(), team.clone(), body);
    match app.builds().file_sets().receive(team.id, &hash, Box::pin(pieces)).await {
        Ok(()) => Ok(StatusCode::OK),
        Err(Error::DataDir { source, .. }) => Err(match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpaceForUpload(source),
            _ => Error::Upload(source),
        }),
        Err(error) => Err(error),
    }
}

/// The team of a link that is valid.
async fn permit(app: &App, team: &str, hash: &str, query: &Query) -> Result<Team> {
    let team = Uuid::parse_str(team).map_err(|_| Error::NotAUuid)?;
    check_hash(hash)?;
    let missing = |name: &str| Error::Refused(format!("the upload link has no \"{name}\""));
    let expiry = query.integer("expires")?.ok_or_else(|| missing("expires"))?;
    let token = query.text("token").ok_or_else(|| missing("token"))?;
    if !app.upload_links().proves(token, team, hash, expiry) {
        return Err(Error::InvalidUploadLink("its token is wrong"));
    }
    if expiry <= clock::now().as_second() {
        return Err(Error::InvalidUploadLink("it has expired, ask for another one"));
    }
    let team = may_act(app.store().team(team).await?.ok_or(Error::TeamNotFound)?)?;
    if team.standing == Standing::Banned {
        return Err(Error::TeamBanned);
    }
    Ok(team)
}

/// The size of an upload that says so, bytes.
fn length(request: &Request) -> u64 {
    let length = request.headers().get(header::CONTENT_LENGTH);
    length.and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or_default()
}

/// Fails when an upload of `wanted` bytes is too large for the team, or the disk too full for it.
async fn check_room(app: &App, team: &Team, wanted: u64) -> Result<()> {
    let max_mib = team.caps.disk_mib.min(FILE_SETS_MIB);
    if !app.builds().file_sets().make_room(team.id, wanted, max_mib << 20).await {
        return Err(Error::UploadTooLarge(max_mib));
    }
    let directory = app.config().data_dir.clone();
    let space = tokio::task::spawn_blocking(move || sandcove_isolate::disk_space(&directory)).await;
    match space {
        Ok(Ok(space)) if is_nearly_full(space.available_bytes.saturating_sub(wanted), space.total_bytes) => {
            Err(Error::NoSpaceForUpload(io::Error::from(io::ErrorKind::StorageFull)))
        }
        // The write itself fails on a full disk.
        _ => Ok(()),
    }
}

/// Whether the disk that also has the database would be so full that it should be left alone.
fn is_nearly_full(left: u64, total: u64) -> bool {
    left < (total / 20).min(FREE_BYTES)
}

/// The body of a request, piece by piece. It ends in an error when the client breaks off or stands still, and when there is no room.
fn pieces(app: App, team: Team, body: Body) -> impl Stream<Item = Result<Bytes>> {
    let first = (body.into_data_stream(), app, team, 0);
    stream::try_unfold(first, |(mut body, app, team, unchecked)| async move {
        let aborted = |error: &dyn Display| {
            tracing::debug!(%error, "an upload for a build was broken off");
            Error::BodyAborted
        };
        let next =
            tokio::time::timeout(UPLOAD_TIMEOUT, body.next()).await.map_err(|error| aborted(&error))?;
        let Some(piece) = next.transpose().map_err(|error| aborted(&error))? else { return Ok(None) };
        let mut unchecked = unchecked + piece.len();
        if unchecked > CHECK_INTERVAL {
            unchecked = 0;
            check_room(&app, &team, 0).await?;
        }
        Ok(Some((piece, (body, app, team, unchecked))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twentieth_of_the_disk_stays_free_and_at_most_1_gib() {
        assert!(!is_nearly_full(5, 100));
        assert!(is_nearly_full(4, 100));
        assert!(is_nearly_full(0, 100));
        let total = 1 << 40;
        assert!(!is_nearly_full(FREE_BYTES, total));
        assert!(is_nearly_full(FREE_BYTES - 1, total));
    }
}
