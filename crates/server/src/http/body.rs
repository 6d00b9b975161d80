//! JSON in and out. Clients send bodies with or without a length, a content type, or a body at all.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// The largest body the API reads, bytes.
const LIMIT: usize = 16 * 1024 * 1024;

/// An answer with a JSON body.
pub(super) fn json<T: Serialize + ?Sized>(status: StatusCode, value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let kind = HeaderValue::from_static("application/json; charset=utf-8");
            (status, [(header::CONTENT_TYPE, kind)], bytes).into_response()
        }
        Err(_) => Error::Internal("an answer could not be written as JSON").into_response(),
    }
}

/// A body that must be there.
pub(super) struct Required<T>(pub(super) T);

/// A body that may be missing; then it is the type's default.
pub(super) struct Optional<T>(pub(super) T);

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for Required<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        parse(&read(request.into_body()).await?).map(Self)
    }
}

impl<S: Sync, T: DeserializeOwned + Default> FromRequest<S> for Optional<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let bytes = read(request.into_body()).await?;
        if bytes.trim_ascii().is_empty() || bytes.trim_ascii() == b"null" {
            return Ok(Self(T::default()));
        }
        parse(&bytes).map(Self)
    }
}

/// A body of which also the bytes matter.
pub(super) async fn read(body: Body) -> Result<Bytes> {
    match Limited::new(body, LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(err) if err.is::<LengthLimitError>() => Err(Error::BodyTooLarge(LIMIT)),
        Err(_) => Err(Error::BodyAborted),
    }
}

/// Reads JSON; members nobody knows are ignored.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    if bytes.trim_ascii().is_empty() {
        return Err(Error::Schema("request body is required".into()));
    }
    serde_json::from_slice(bytes).map_err(|err| Error::Schema(err.to_string()))
}
