//! Parameters in paths and query strings.

use axum::extract::{self, FromRequestParts};
use http::request::Parts;
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use sandcove_wire::id::SandboxId;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::{Error, Result};

/// The parameters of a path, as text. Handlers take them after the credentials, so that a request without any is refused for that.
pub(super) struct Path<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let extract::Path(found) = extract::Path::from_request_parts(parts, state)
            .await
            .map_err(|_| Error::InvalidRequest("the path is not UTF-8".into()))?;
        Ok(Self(found))
    }
}

/// The `{id}` of a path, as a sandbox id; the composite form of old clients is accepted too.
pub(super) struct Sandbox(pub(super) SandboxId);

impl<S: Send + Sync> FromRequestParts<S> for Sandbox {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let Path(id) =
            Path::<String>::from_request_parts(parts, state).await.map_err(|_| Error::InvalidSandboxId)?;
        let id = id.parse().map_err(|_| Error::InvalidSandboxId)?;
        tracing::Span::current().record("sandbox_id", tracing::field::display(&id));
        Ok(Self(id))
    }
}

/// The `{id}` of a path, as a UUID.
pub(super) struct Id(pub(super) Uuid);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let invalid = || Error::NotAUuid;
        let Path(id) = Path::<String>::from_request_parts(parts, state).await.map_err(|_| invalid())?;
        Uuid::parse_str(&id).map(Self).map_err(|_| invalid())
    }
}

/// The query string, decoded once.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        Ok(Self::parse(parts.uri.query().unwrap_or_default()))
    }
}

impl Query {
    pub(super) fn parse(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// The value of `name`; an empty value counts as none.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).filter(|v| !v.is_empty())
    }

    /// The value of `name`, as an integer.
    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>> {
        let parse = |value: &str| value.parse().map_err(|_| invalid(name, "must be an integer"));
        self.text(name).map(parse).transpose()
    }

    /// The value of `name`, as an integer within `range`, or `default`.
    pub(super) fn integer_in(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<i64>,
        default: i64,
    ) -> Result<i64> {
        let value = self.integer(name)?.unwrap_or(default);
        if range.contains(&value) {
            Ok(value)
        } else {
            Err(invalid(name, &format!("must be between {} and {}", range.start(), range.end())))
        }
    }

    /// The value of `name`, as an RFC 3339 time.
    pub(super) fn time(&self, name: &str) -> Result<Option<Timestamp>> {
        let parse = |value: &str| value.parse().map_err(|_| invalid(name, "must be an RFC 3339 time"));
        self.text(name).map(parse).transpose()
    }

    /// The comma-separated values of `name`, which may be repeated.
    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        let values = self.0.iter().filter(|(key, _)| key == name);
        values.flat_map(|(_, value)| value.split(',')).map(str::trim).filter(|v| !v.is_empty()).collect()
    }

    /// The metadata filter: pairs that must all be equal. Clients encode it three times, of which one is undone already
    /// (contract: control-plane, section 4.5).
    pub(super) fn metadata(&self) -> Result<Vec<(String, String)>> {
        let Some(filter) = self.text("metadata") else { return Ok(Vec::new()) };
        let whole = form_unescape(filter)?;
        whole
            .split('&')
            .filter(|piece| !piece.is_empty())
            .map(|piece| {
                let (key, value) =
                    piece.split_once('=').ok_or_else(|| invalid("metadata", "must be key=value pairs"))?;
                Ok((form_unescape(key)?, form_unescape(value)?))
            })
            .collect()
    }
}

fn form_unescape(text: &str) -> Result<String> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(String::from).map_err(|_| invalid("metadata", "is not UTF-8"))
}

/// The error for a query parameter that does not have its documented form.
pub(super) fn invalid(name: &str, why: &str) -> Error {
    Error::InvalidRequest(format!("parameter \"{name}\" {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_decoded_three_times() {
        let query = Query::parse("metadata=user%252520id%3Da%252526b%25253Dc%26k%3Dv");
        let expected = [("user id", "a&b=c"), ("k", "v")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(query.metadata().unwrap(), expected);
    }

    #[test]
    fn metadata_without_a_value_is_refused() {
        assert!(Query::parse("metadata=abc").metadata().is_err());
        assert_eq!(Query::parse("").metadata().unwrap(), []);
    }

    #[test]
    fn lists_are_comma_joined_or_repeated() {
        let query = Query::parse("state=running%2Cpaused&x=1&state=a");
        assert_eq!(query.list("state"), ["running", "paused", "a"]);
    }

    #[test]
    fn numbers_outside_their_range_are_refused() {
        for bad in ["limit=0", "limit=101", "limit=-1", "limit=x"] {
            assert!(Query::parse(bad).integer_in("limit", 1..=100, 100).is_err(), "{bad}");
        }
        assert_eq!(Query::parse("").integer_in("limit", 1..=100, 100).unwrap(), 100);
    }
}
