//! The two encodings of a message, and the content types that name them.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::json;
use crate::error::{Error, Result};

/// A generated message, readable and writable in both encodings.
pub trait Message: prost::Message + Default + Serialize + DeserializeOwned + Send + 'static {}

impl<T: prost::Message + Default + Serialize + DeserializeOwned + Send + 'static> Message for T {}

/// The encoding of the messages of a request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// JSON mapping of Protobuf, which all official clients use.
    Json,
    /// Binary Protobuf.
    Proto,
}

/// Whether an RPC exchanges single messages or enveloped ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A message each way, in the plain body.
    Unary,
    /// Enveloped messages in at least one direction.
    Stream,
}

impl Shape {
    /// Value of `Accept-Post` when the content type is unknown.
    pub fn accept_post(self) -> &'static str {
        match self {
            Self::Unary => "application/json, application/json; charset=utf-8, application/proto",
            Self::Stream => "application/connect+json, application/connect+proto",
        }
    }
}

impl Codec {
    /// Reads a content type; `None` when it does not fit `shape`.
    pub fn from_content_type(shape: Shape, content_type: &str) -> Option<Self> {
        let (kind, parameters) = match content_type.split_once(';') {
            Some((kind, parameters)) => (kind.trim(), parameters.trim()),
            None => (content_type.trim(), ""),
        };
        let codec = match (shape, kind.to_ascii_lowercase().as_str()) {
            (Shape::Unary, "application/json") | (Shape::Stream, "application/connect+json") => Self::Json,
            (Shape::Unary, "application/proto") | (Shape::Stream, "application/connect+proto") => Self::Proto,
            _ => return None,
        };
        let utf8 = codec == Self::Json && parameters.eq_ignore_ascii_case("charset=utf-8");
        (parameters.is_empty() || utf8).then_some(codec)
    }

    /// The content type of answers.
    pub fn content_type(self, shape: Shape) -> &'static str {
        match (shape, self) {
            (Shape::Unary, Self::Json) => "application/json",
            (Shape::Unary, Self::Proto) => "application/proto",
            (Shape::Stream, Self::Json) => "application/connect+json",
            (Shape::Stream, Self::Proto) => "application/connect+proto",
        }
    }

    /// Reads one message.
    pub fn decode<M: Message>(self, payload: Bytes) -> Result<M> {
        match self {
            Self::Json => json::decode(&payload).map_err(|e| e.to_string()),
            Self::Proto => M::decode(payload).map_err(|e| e.to_string()),
        }
        .map_err(|e| Error::invalid_argument(format!("failed to read the message: {e}")))
    }

    /// Appends one message to `out`.
    pub fn encode<M: Message>(self, message: &M, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Json => serde_json::to_writer(out, message).map_err(|e| e.to_string()),
            Self::Proto => message.encode(out).map_err(|e| e.to_string()),
        }
        .map_err(|e| Error::internal(format!("failed to write the message: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_depend_on_the_shape() {
        let read = Codec::from_content_type;
        assert_eq!(read(Shape::Unary, "application/json"), Some(Codec::Json));
        assert_eq!(read(Shape::Unary, "application/json; charset=utf-8"), Some(Codec::Json));
        assert_eq!(read(Shape::Unary, "Application/Proto"), Some(Codec::Proto));
        assert_eq!(read(Shape::Unary, "application/connect+json"), None);
        assert_eq!(read(Shape::Stream, "application/connect+json"), Some(Codec::Json));
        assert_eq!(read(Shape::Stream, "application/json"), None);
        assert_eq!(read(Shape::Unary, "application/json; charset=latin1"), None);
    }
}
