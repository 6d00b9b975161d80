//! Authorization of downloads and uploads (contract: envd, section 4.1). The general token check leaves these requests to this
//! module, because a signed URL works without a token.

use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use sandcove_wire::signature::Operation;

use super::error::{Error, Result};
use super::query::FilesQuery;
use super::signature;
use crate::state::{Access, State, TokenCheck};

/// Refuses a request that carries neither the token nor a valid signature.
pub(super) fn authorize(
    state: &State,
    headers: &HeaderMap,
    query: &FilesQuery,
    operation: Operation,
) -> Result<()> {
    let presented = headers.get("x-access-token").map(|value| value.to_str().unwrap_or("\u{fffd}"));
    match state.check_token(presented) {
        TokenCheck::Open | TokenCheck::Valid => return Ok(()),
        TokenCheck::Wrong => return Err(Error::unauthorized("the access token in the request is not valid")),
        TokenCheck::Missing => {}
    }
    let (Some(signed), Some(token)) = (&query.signature, state.access_token()) else {
        return match state.access() {
            Access::Optional => Ok(()),
            Access::Required => Err(Error::unauthorized("missing signature query parameter")),
        };
    };
    let path = query.path.as_deref().unwrap_or_default();
    let username = query.username.as_deref().unwrap_or_default();
    // A clock before 1970 counts as 1970.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    signature::check(signed, path, operation, username, &token, now)
        .map_err(|rejected| Error::unauthorized(rejected.to_string()))
}
