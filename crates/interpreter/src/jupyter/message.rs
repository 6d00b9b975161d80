//! Jupyter messages: their parts and their signature.

use bytes::Bytes;
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::Sha256;
use uuid::Uuid;

use crate::readable::readable;

/// Separates routing from the message.
const DELIMITER: &[u8] = b"<IDS|MSG>";
/// Version of the messaging protocol.
const PROTOCOL: &str = "5.3";

/// The parts of a kernel's message that the interpreter uses.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Message type, e.g. `execute_reply`.
    pub kind: String,
    /// Id of the request that the message belongs to; empty when there is none.
    pub parent: String,
    /// Content, which depends on the type.
    pub content: Map<String, Value>,
}

/// An error in a message of a kernel.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum MessageError {
    /// Parts are missing.
    #[error("message has too few parts")]
    Parts,
    /// The message was not signed with the key of this kernel.
    #[error("message has a wrong signature")]
    Signature,
    /// The header or content is malformed.
    #[error("message has a malformed {0}")]
    Malformed(&'static str),
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Header {
    msg_id: String,
    msg_type: String,
}

/// The key of one kernel, and the name of this client there.
#[derive(Clone)]
pub struct Key {
    mac: Hmac<Sha256>,
    session: String,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

impl Key {
    /// Makes a key of a connection file's text.
    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
    pub fn new(secret: &str, session: &str) -> Self {
        let mac = Hmac::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
        Self { mac, session: session.to_owned() }
    }

    /// Makes the parts of a new request, and the id that its answers will carry.
    pub fn request(&self, kind: &str, content: &Value) -> (String, Vec<Bytes>) {
        let id = Uuid::new_v4().to_string();
        let header = json!({
            "msg_id": id, "msg_type": kind, "session": self.session, "username": "sandcove",
            "date": jiff::Timestamp::now().to_string(), "version": PROTOCOL,
        });
        let parts = [header.to_string(), "{}".to_owned(), "{}".to_owned(), content.to_string()];
        (id, self.sign(parts.map(Bytes::from)))
    }

    fn sign(&self, parts: [Bytes; 4]) -> Vec<Bytes> {
        let mut mac = self.mac.clone();
        parts.iter().for_each(|part| mac.update(part));
        let signature =
            mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut all = vec![Bytes::from_static(DELIMITER), signature.into()];
        all.extend(parts);
        all
    }

    /// Reads a message.
    ///
    /// # Errors
    /// If the message is malformed or not signed by this kernel.
    pub fn read(&self, parts: &[Bytes]) -> Result<Message, MessageError> {
        let start = parts.iter().position(|part| part == DELIMITER).ok_or(MessageError::Parts)?;
        let [signature, header, parent, metadata, content, ..] = &parts[start + 1..] else {
            return Err(MessageError::Parts);
        };
        let mut mac = self.mac.clone();
        [header, parent, metadata, content].into_iter().for_each(|part| mac.update(part));
        let claimed = from_hex(signature).ok_or(MessageError::Signature)?;
        mac.verify_slice(&claimed).map_err(|_| MessageError::Signature)?;
        let header: Header = serde_json::from_slice(header).map_err(|_| MessageError::Malformed("header"))?;
        // Some kernels send nothing, null or text here when there is no parent.
        let parent: Header = serde_json::from_slice(parent).unwrap_or_default();
        let Some(Value::Object(content)) = readable(content) else {
            return Err(MessageError::Malformed("content"));
        };
        Ok(Message { kind: header.msg_type, parent: parent.msg_id, content })
    }
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn key() -> Key {
        Key::new("secret", "us")
    }

    /// The parts a kernel would send.
    fn sent(header: &str, parent: &str, content: &str) -> Vec<Bytes> {
        let parts = [header, parent, "{}", content].map(|part| Bytes::from(part.to_owned()));
        let mut all = vec![Bytes::from("kernel.topic")];
        all.extend(key().sign(parts));
        all
    }

    #[test]
    fn signatures_are_those_of_every_other_implementation() {
        // HMAC-SHA256 of `{}{}{}{}` with the key `secret`, from another implementation.
        let signed = key().sign(["{}"; 4].map(Bytes::from));
        assert_eq!(signed[1], "34982f0bfec60e7b933ffde06c1ecab0fba073717a95ab943d1dd06f82c2d5e4");
    }

    #[test]
    fn signed_messages_can_be_read() {
        let (id, parts) = key().request("execute_request", &json!({ "code": "é" }));
        let message = key().read(&parts).unwrap();
        assert_eq!((message.kind.as_str(), message.parent.as_str()), ("execute_request", ""));
        assert_eq!(message.content["code"], "é");
        let header: Value = serde_json::from_slice(&parts[2]).unwrap();
        assert_eq!((&header["msg_id"], &header["session"]), (&json!(id), &json!("us")));
    }

    #[test]
    fn a_message_changed_anywhere_is_refused() {
        let (_, parts) = key().request("execute_request", &json!({ "code": "1" }));
        for part in 1..parts.len() {
            let mut changed = parts.clone();
            changed[part] = [&parts[part][..], b" "].concat().into();
            assert_eq!(key().read(&changed), Err(MessageError::Signature), "part {part}");
        }
        assert_eq!(Key::new("other", "us").read(&parts), Err(MessageError::Signature));
    }

    #[test]
    fn malformed_messages_are_distinguished() {
        assert_eq!(key().read(&[]), Err(MessageError::Parts));
        assert_eq!(key().read(&sent("{}", "{}", "{}")[..5]), Err(MessageError::Parts));
        assert_eq!(key().read(&sent("[", "{}", "{}")), Err(MessageError::Malformed("header")));
        assert_eq!(key().read(&sent("{}", "{}", "[]")), Err(MessageError::Malformed("content")));
        for orphan in ["", "null", "[]", "{}", r#"{"msg_id": 5}"#] {
            assert_eq!(key().read(&sent("{}", orphan, "{}")).unwrap().parent, "", "{orphan}");
        }
    }

    proptest! {
        #[test]
        fn any_parts_are_a_message_or_an_error(parts in vec(vec(any::<u8>(), 0..40), 0..8)) {
            let mut parts: Vec<Bytes> = parts.into_iter().map(Bytes::from).collect();
            prop_assert!(key().read(&parts).is_err());
            parts.insert(0, Bytes::from_static(DELIMITER));
            prop_assert!(key().read(&parts).is_err());
        }
    }
}
