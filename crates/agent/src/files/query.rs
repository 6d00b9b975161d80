//! Query parameters of the files API.

use axum::extract::{FromRequestParts, Query};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use sandcove_wire::signature::UrlSignature;
use serde::Deserialize;

/// The query of GET and POST `/files`. All fields are as written in the query: signatures cover that text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FilesQuery {
    pub(super) path: Option<String>,
    pub(super) username: Option<String>,
    pub(super) signature: Option<UrlSignature>,
}

impl<S: Sync + Send> FromRequestParts<S> for FilesQuery {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        #[derive(Deserialize)]
        struct Raw {
            path: Option<String>,
            username: Option<String>,
            signature: Option<String>,
            signature_expiration: Option<String>,
        }
        let refuse = |text: String| (StatusCode::BAD_REQUEST, text).into_response();
        let Query(raw) = Query::<Raw>::from_request_parts(parts, state)
            .await
            .map_err(|error| refuse(error.body_text()))?;
        let expiration = raw.signature_expiration.as_deref().map(str::parse).transpose();
        let expiration = expiration
            .map_err(|e| refuse(format!("invalid format for parameter signature_expiration: {e}")))?;
        let signature = raw.signature.map(|value| UrlSignature { value, expiration });
        Ok(Self { path: raw.path, username: raw.username, signature })
    }
}
