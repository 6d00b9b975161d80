//! The HTTP files API: downloads, uploads and joining uploads (contract: envd, section 4).
//!
//! A download is a chain of small reads on blocking threads, one chunk ahead of the connection; an upload is the reverse.
//! Neither holds more than a few chunks, however large the file is.
//!
//! An upload is received in full before the target is touched, so a broken one changes nothing; [`place`] describes how the
//! received bytes get into the target.

mod auth;
mod body;
mod chunks;
mod compose;
mod conditions;
mod content_type;
mod disposition;
mod download;
mod encoding;
mod error;
#[cfg(any(test, fuzzing, debug_assertions))]
pub(crate) mod fuzzing;
mod metadata_headers;
mod multipart;
mod place;
mod query;
mod receive;
mod signature;
mod spool;
mod upload;

use axum::Router;
use axum::routing::{get, post};

/// The router of the files API. Requests must carry a [`RequestContext`](crate::state::RequestContext) extension.
pub fn router() -> Router {
    Router::new()
        .route("/files", get(download::handle).post(upload::handle))
        .route("/files/compose", post(compose::handle))
}
