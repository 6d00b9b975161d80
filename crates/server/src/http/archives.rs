//! Calls for the storage of templates, which are additions of this server: a template as an archive, and the deletion of what no
//! template needs.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use sandcove_wire::api::build as wire;

use super::auth::{Caller, Reader};
use super::body::{self, Optional};
use super::templates::Named;
use crate::state::{App, EXPORTS};
use crate::{Error, Result};

/// Answers with a template as an archive of an OCI layout.
pub(super) async fn export(
    State(app): State<App>,
    Reader(team): Reader,
    Named(reference): Named,
) -> Result<Response> {
    // Not waited for, as this call has one of the turns at reading.
    let turn = app.exports().try_take(team.id);
    let turn = turn.ok_or(Error::TooManyAtOnce { max: EXPORTS, what: "exports of templates" })?;
    let mut template = app.templates().resolve(&team, &reference).await?;
    let pieces = loop {
        let alias = template.info.aliases().into_iter().next();
        let name = alias.unwrap_or_else(|| template.info.id.to_string());
        let name = format!("{name}:{}", reference.tag());
        match app.builds().export(&template.build, &name).await {
            Ok(pieces) => break pieces,
            // Deleted with its files, or built again, since it was looked up?
            Err(error) => {
                let now = app.templates().resolve(&team, &reference).await?;
                if now.build.build_id == template.build.build_id {
                    return Err(error);
                }
                template = now;
            }
        }
    };
    let body = stream::unfold((pieces, turn), |(mut pieces, turn)| async {
        Some((pieces.recv().await?, (pieces, turn)))
    });
    let kind = HeaderValue::from_static("application/x-tar");
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(body)).into_response())
}

/// Deletes what the team's builds have cached and nothing needs.
pub(super) async fn collect(
    State(app): State<App>,
    Caller(team): Caller,
    Optional(body): Optional<wire::CollectGarbage>,
) -> Result<Response> {
    let garbage = app.builds().collect(team.id, body.dry_run).await?;
    let all = garbage.snapshots.iter().chain(&garbage.layers).map(|(_, bytes)| bytes);
    let bytes = all.chain(&garbage.uploads).sum();
    let items = |all: Vec<(String, u64)>| {
        all.into_iter().map(|(name, bytes)| wire::GarbageItem { name, bytes }).collect()
    };
    let answer = wire::Garbage {
        dry_run: body.dry_run,
        steps: items(garbage.snapshots),
        layers: items(garbage.layers),
        uploads: garbage.uploads.len(),
        bytes,
    };
    Ok(body::json(StatusCode::OK, &answer))
}
