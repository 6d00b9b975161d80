//! The table of a run, as a page or as a file.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use sandcove_eval::view::{Export, Filter, PageRequest, Search, ViewError};
use tokio::sync::mpsc;

use crate::error::Refused;
use crate::shared::Shared;

/// The default number of tests on a page.
const LIMIT: usize = 50;
/// The most tests on a page.
const MAX_LIMIT: usize = 1000;

/// `GET /api/eval/{id}/table`
pub(crate) async fn table(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let query = query.unwrap_or_default();
    let format = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "format");
    if let Some((_, format)) = format {
        let what = format.parse::<Export>()?;
        return file(shared, id, what, None).await;
    }
    let wanted = wanted(&query)?;
    let mut page = shared.library.page(&id, &wanted).await?;
    page["isRepeatable"] = (shared.runs.is_some() && shared.library.is_repeatable(&id).await?).into();
    Ok(Json(page).into_response())
}

/// Reads the query of a page.
fn wanted(query: &str) -> Result<PageRequest, Refused> {
    let mut wanted = PageRequest { limit: LIMIT, ..PageRequest::default() };
    let mut search = (String::new(), false);
    let mut asked = form_urlencoded::Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let number = || {
            let invalid = |_| Refused::Invalid(format!("invalid {name} `{value}`"));
            value.parse::<usize>().map_err(invalid)
        };
        match &*name {
            "limit" => wanted.limit = number()?.clamp(1, MAX_LIMIT),
            "offset" => wanted.offset = number()?,
            "brief" => wanted.brief = Some(number()?),
            "filterMode" => wanted.query.mode = value.parse()?,
            "search" => search.0 = value.clone().into_owned(),
            "searchMode" => search.1 = value == "regex",
            "filter" => wanted.query.filters.push(value.parse::<Filter>()?),
            "comparisonEvalIds" => {
                wanted.beside.extend(value.split(',').filter(|id| !id.is_empty()).map(str::to_owned));
            }
            _ => {}
        }
        if matches!(&*name, "filterMode" | "search" | "searchMode" | "filter") {
            asked.append_pair(&name, &value);
        }
    }
    if !search.0.is_empty() {
        wanted.query.search = Some(Search::new(&search.0, search.1)?);
    }
    wanted.asked = asked.finish();
    Ok(wanted)
}

/// A run as a file, sent while it is read. `around` is put around it, to be part of an answer instead.
pub(crate) async fn file(
    shared: Arc<Shared>,
    id: String,
    what: Export,
    around: Option<(&'static str, &'static str)>,
) -> Result<Response, Refused> {
    let (send, mut pieces) = mpsc::channel(4);
    let name = format!("{id}{}", what.ending());
    let reading = tokio::spawn(async move { shared.library.export(&id, what, send).await });
    // Errors before the first piece have a status of their own.
    let Some(first) = pieces.recv().await else {
        return Err(match reading.await {
            Ok(Err(error)) => Refused::Stored(error),
            _ => Refused::Stored(ViewError::Stopped),
        });
    };
    let (before, after) = around.unwrap_or_default();
    let head = [Ok(Bytes::from_static(before.as_bytes())), first.map(Bytes::from)];
    let rest = stream::unfold((pieces, Some(reading)), move |(mut pieces, reading)| async move {
        if let Some(piece) = pieces.recv().await {
            return Some((piece.map(Bytes::from), (pieces, reading)));
        }
        // A file that breaks off must not look whole.
        match reading?.await {
            Ok(Ok(())) => Some((Ok(Bytes::from_static(after.as_bytes())), (pieces, None))),
            Ok(Err(error)) => Some((Err(error), (pieces, None))),
            Err(error) => {
                tracing::warn!(%error, "an export stopped");
                Some((Err(ViewError::Stopped), (pieces, None)))
            }
        }
    });
    let body = Body::from_stream(futures_util::StreamExt::chain(stream::iter(head), rest));
    let mut response = ([(header::CONTENT_TYPE, what.media_type())], body).into_response();
    if around.is_none() {
        let safe: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
            .collect();
        if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{safe}\"")) {
            response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
        }
    }
    Ok(response)
}
