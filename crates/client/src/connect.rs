//! The Connect protocol as far as a client of the agent needs it: envelopes of JSON messages (contract: envd, section
//! 1.1).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::body::Pieces;
use crate::error::{Error, Result};

/// Flag of the last message of a stream, which is always JSON.
const END_OF_STREAM: u8 = 2;
/// Flag of a compressed message, which is never requested.
const COMPRESSED: u8 = 1;

/// Maximum size of a message in a stream, bytes. The agent cuts output into far smaller ones, and what runs in a sandbox may have replaced
/// the agent.
const MAX_MESSAGE: usize = 4 << 20;

/// Makes the header that names the account of a call at `url`, which has no password.
///
/// # Errors
/// [`Error::Malformed`] if the account cannot be named in a header.
pub(crate) fn basic(user: &str, url: &str) -> Result<(HeaderName, HeaderValue)> {
    let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(format!("{user}:"))));
    let value = value.map_err(|error| Error::Malformed { url: url.to_owned(), reason: error.to_string() })?;
    Ok((AUTHORIZATION, value))
}

/// Makes the body of a request that is answered by a stream.
pub(crate) fn envelope(message: &impl Serialize) -> serde_json::Result<Bytes> {
    let payload = serde_json::to_vec(message)?;
    let mut bytes = BytesMut::with_capacity(5 + payload.len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    bytes.extend_from_slice(&payload);
    Ok(bytes.freeze())
}

/// Reads the next message of a stream; `None` after its regular end.
pub(crate) async fn next<T: DeserializeOwned>(pieces: &mut Pieces) -> Result<Option<T>> {
    let Some(head) = pieces.exactly(5).await? else {
        return Err(pieces.malformed("the stream ends without saying so"));
    };
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if length > MAX_MESSAGE {
        return Err(pieces.malformed("a message is too long"));
    }
    let Some(payload) = pieces.exactly(length).await? else {
        return Err(pieces.malformed("the stream ends in the middle of a message"));
    };
    if head[0] & COMPRESSED != 0 {
        return Err(pieces.malformed("a compressed message although none was asked for"));
    }
    if head[0] & END_OF_STREAM != 0 {
        return match end(&payload) {
            Ok(None) => Ok(None),
            Ok(Some(error)) => Err(error),
            Err(error) => Err(pieces.malformed(error)),
        };
    }
    serde_json::from_slice(&payload).map(Some).map_err(|error| pieces.malformed(error))
}

fn end(payload: &[u8]) -> serde_json::Result<Option<Error>> {
    let end: serde_json::Value = serde_json::from_slice(payload)?;
    let Some(error) = end.get("error") else { return Ok(None) };
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    Ok(Some(Error::Rpc { code: text("code"), message: text("message") }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_flags_length_and_payload() {
        assert_eq!(envelope(&serde_json::json!({"a": 1})).unwrap(), &b"\0\0\0\0\x07{\"a\":1}"[..]);
    }

    #[test]
    fn the_last_message_may_be_an_error() {
        assert!(end(b"{}").unwrap().is_none());
        let error = end(br#"{"error":{"code":"not_found","message":"gone"}}"#).unwrap().unwrap();
        assert_eq!(error.to_string(), "gone");
    }
}
