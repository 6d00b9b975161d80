//! JSON bodies. Clients send them with or without a length, a content type, or a body at all.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::memory::{Memory, is_too_long, whole};
use crate::{Error, Result};

/// Maximum size of a request body, bytes.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// An answer with a JSON body.
pub(super) fn json<T: Serialize + ?Sized>(status: StatusCode, value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(mut bytes) => {
            // Answers wait for their clients.
            bytes.shrink_to_fit();
            let kind = HeaderValue::from_static("application/json; charset=utf-8");
            (status, [(header::CONTENT_TYPE, kind)], bytes).into_response()
        }
        Err(_) => Error::Internal("an answer could not be written as JSON").into_response(),
    }
}

/// A request body that must not be missing.
pub(super) struct Required<T>(pub(super) T);

/// A request body that may be missing; the type's default then.
pub(super) struct Optional<T>(pub(super) T);

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for Required<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        parse(&read(request).await?).map(Self)
    }
}

impl<S: Sync, T: DeserializeOwned + Default> FromRequest<S> for Optional<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let bytes = read(request).await?;
        if bytes.trim_ascii().is_empty() || bytes.trim_ascii() == b"null" {
            return Ok(Self(T::default()));
        }
        parse(&bytes).map(Self)
    }
}

/// Reads the body of a request.
pub(super) async fn read(request: Request) -> Result<Bytes> {
    let (parts, body) = request.into_parts();
    match whole(body, MAX_BODY, parts.extensions.get::<Memory>()).await {
        Err(error) if is_too_long(&error) => Err(Error::BodyTooLarge(MAX_BODY)),
        read => read.map_err(|_| Error::BodyAborted),
    }
}

/// Reads the rest of a refused upload, within a bound. A client that is still sending does not read the answer, and takes a
/// closed connection for a broken one.
pub(super) async fn discard(body: Body) {
    const MAX_DISCARDED: usize = 64 << 20;
    let mut read = 0;
    let mut chunks = body.into_data_stream();
    while let Some(Ok(chunk)) = chunks.next().await {
        read += chunk.len();
        if read > MAX_DISCARDED {
            return;
        }
    }
}

/// Parses JSON; unknown members are ignored.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    if bytes.trim_ascii().is_empty() {
        return Err(Error::InvalidRequest("request body is required".into()));
    }
    // Members by their position, to the parser.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(Error::InvalidRequest("invalid type: array, expected an object".into()));
    }
    serde_json::from_slice(bytes).map_err(|err| Error::InvalidRequest(err.to_string()))
}
