//! Framing of streamed messages: one flag byte, four bytes of length, the payload. Pure, no I/O.

use std::io::Read;

use bytes::{Buf, Bytes, BytesMut};

use super::codec::{Codec, Message};
use crate::error::{Code, Error, Result};

/// Flag of a compressed payload.
const COMPRESSED: u8 = 1;
/// Flag of the payload that is the end-of-stream JSON.
const END_STREAM: u8 = 2;
/// Length of what precedes each payload, in bytes.
const PREFIX: usize = 5;
/// Limit on a message, before and after decompression, in bytes: it is held in memory as a whole.
pub const MAX_MESSAGE: usize = 128 << 20;

/// The compression of request payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// No compression.
    Identity,
    /// Gzip compression.
    Gzip,
}

impl Encoding {
    /// Reads `Content-Encoding` or `Connect-Content-Encoding`; absent and empty mean identity.
    pub fn from_header(value: Option<&str>) -> Result<Self> {
        match value.map(str::trim) {
            None | Some("" | "identity") => Ok(Self::Identity),
            Some("gzip") => Ok(Self::Gzip),
            Some(other) => Err(Error::unimplemented(format!(
                "unknown compression `{other}`: supported are gzip, identity"
            ))),
        }
    }

    /// Decompresses a whole payload.
    pub fn decode(self, payload: Bytes) -> Result<Bytes> {
        match self {
            Self::Identity => Ok(payload),
            Self::Gzip => gunzip(&payload),
        }
    }
}

fn gunzip(payload: &[u8]) -> Result<Bytes> {
    let mut plain = Vec::new();
    let limit = MAX_MESSAGE as u64 + 1;
    flate2::read::GzDecoder::new(payload)
        .take(limit)
        .read_to_end(&mut plain)
        .map_err(|e| Error::invalid_argument(format!("failed to decompress the message: {e}")))?;
    if plain.len() > MAX_MESSAGE { Err(too_long(plain.len())) } else { Ok(plain.into()) }
}

fn too_long(length: usize) -> Error {
    Error::resource_exhausted(format!(
        "a message of {length} bytes is longer than the limit of {MAX_MESSAGE}"
    ))
}

/// Cuts a byte stream into payloads.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    encoding: Encoding,
    ended: bool,
}

impl Decoder {
    /// Makes a decoder for payloads that are compressed, if they are, with `encoding`.
    pub fn new(encoding: Encoding) -> Self {
        Self { buffer: BytesMut::new(), encoding, ended: false }
    }

    /// Adds bytes as they arrive.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the next whole payload, if it has arrived. Bytes after an end-of-stream message are ignored.
    pub fn next_payload(&mut self) -> Result<Option<Bytes>> {
        if self.ended || self.buffer.len() < PREFIX {
            return Ok(None);
        }
        let flags = self.buffer[0];
        let length = u32::from_be_bytes([self.buffer[1], self.buffer[2], self.buffer[3], self.buffer[4]]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > MAX_MESSAGE {
            return Err(too_long(length));
        }
        if flags & !(COMPRESSED | END_STREAM) != 0 {
            return Err(Error::invalid_argument(format!("unknown envelope flags {flags:#04x}")));
        }
        if self.buffer.len() - PREFIX < length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        let payload = self.buffer.split_to(length).freeze();
        if flags & END_STREAM != 0 {
            self.ended = true;
            return Ok(None);
        }
        if flags & COMPRESSED == 0 {
            return Ok(Some(payload));
        }
        match self.encoding {
            Encoding::Identity => {
                Err(Error::internal("compressed message without a Connect-Content-Encoding"))
            }
            Encoding::Gzip => self.encoding.decode(payload).map(Some),
        }
    }

    /// Checks that the byte stream may end here; an unfinished envelope is an error.
    pub fn finish(&self) -> Result<()> {
        if self.ended || self.buffer.is_empty() {
            return Ok(());
        }
        let left = self.buffer.len();
        Err(Error::invalid_argument(format!(
            "the request ends in the middle of an envelope, after {left} bytes of it"
        )))
    }
}

/// Appends `message` in its envelope to `out`.
pub fn write_message<M: Message>(codec: Codec, message: &M, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    if let Err(error) = codec.encode(message, out).and_then(|()| seal(out, start, 0)) {
        out.truncate(start);
        return Err(error);
    }
    Ok(())
}

/// Appends the end-of-stream envelope to `out`: `{}` or the error.
pub fn write_end(error: Option<&Error>, out: &mut Vec<u8>) {
    #[derive(serde::Serialize)]
    struct End<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a Error>,
    }
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    let written = serde_json::to_writer(&mut *out, &End { error });
    // Neither can fail: a vector has no limit, and the text is far shorter than 4 GiB.
    debug_assert!(written.is_ok());
    let sealed = seal(out, start, END_STREAM);
    debug_assert!(sealed.is_ok());
}

fn seal(out: &mut [u8], start: usize, flags: u8) -> Result<()> {
    let length = out.len() - start - PREFIX;
    let prefix = u32::try_from(length)
        .map_err(|_| Error::new(Code::ResourceExhausted, "message longer than 4 GiB"))?;
    out[start] = flags;
    out[start + 1..start + PREFIX].copy_from_slice(&prefix.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use sandcove_wire::envd::process::{SendSignalRequest, StartRequest};

    use super::*;

    fn envelope(flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![flags];
        out.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
        out.extend_from_slice(payload);
        out
    }

    fn gzip(payload: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(payload).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_compressed_payload_needs_its_encoding_named() {
        let bytes = envelope(COMPRESSED, &gzip(b"{}"));
        let mut named = Decoder::new(Encoding::Gzip);
        named.push(&bytes);
        assert_eq!(named.next_payload().unwrap().as_deref(), Some(&b"{}"[..]));
        let mut unnamed = Decoder::new(Encoding::Identity);
        unnamed.push(&bytes);
        assert_eq!(unnamed.next_payload().unwrap_err().code, Code::Internal);
        assert_eq!(Encoding::from_header(Some("br")).unwrap_err().code, Code::Unimplemented);
    }

    #[test]
    fn lengths_over_the_limit_are_refused_before_any_payload_arrives() {
        let mut decoder = Decoder::new(Encoding::Identity);
        decoder.push(&[0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(decoder.next_payload().unwrap_err().code, Code::ResourceExhausted);
    }

    #[test]
    fn the_end_is_json_with_the_error() {
        let mut out = Vec::new();
        write_end(None, &mut out);
        assert_eq!(out, envelope(END_STREAM, b"{}"));
        out.clear();
        write_end(Some(&Error::not_found("gone")), &mut out);
        assert_eq!(out, envelope(END_STREAM, br#"{"error":{"code":"not_found","message":"gone"}}"#));
    }

    #[test]
    fn messages_follow_the_json_mapping() {
        let read = |json: &str| Codec::Json.decode::<StartRequest>(Bytes::copy_from_slice(json.as_bytes()));
        let request =
            read(r#"{"process":{"cmd":"ls","later":1},"stdin":false,"unknown":{"a":[1]}}"#).unwrap();
        assert_eq!(request.process.unwrap().cmd, "ls");
        assert_eq!(read("{").unwrap_err().code, Code::InvalidArgument);
        for json in [r#"{"signal":9}"#, r#"{"signal":"SIGNAL_SIGKILL"}"#] {
            let request: SendSignalRequest =
                Codec::Json.decode(Bytes::copy_from_slice(json.as_bytes())).unwrap();
            assert_eq!(request.signal, 9, "{json}");
        }
    }

    proptest! {
        /// However the bytes are cut on their way, the payloads are the same.
        #[test]
        fn payloads_survive_any_cut(
            payloads in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..40)), 0..8),
            cuts in prop::collection::vec(1usize..12, 1..12),
        ) {
            let mut bytes = Vec::new();
            for (compressed, payload) in &payloads {
                match compressed {
                    true => bytes.extend(envelope(COMPRESSED, &gzip(payload))),
                    false => bytes.extend(envelope(0, payload)),
                }
            }
            let mut decoder = Decoder::new(Encoding::Gzip);
            let mut seen = Vec::new();
            let mut rest = bytes.as_slice();
            for cut in cuts.iter().cycle() {
                let (piece, left) = rest.split_at((*cut).min(rest.len()));
                decoder.push(piece);
                rest = left;
                while let Some(payload) = decoder.next_payload().unwrap() {
                    seen.push(payload.to_vec());
                }
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert!(decoder.finish().is_ok());
            prop_assert_eq!(seen, payloads.into_iter().map(|(_, payload)| payload).collect::<Vec<_>>());
        }

        /// Any bytes are payloads, nothing or an error, never a panic, and an unfinished envelope is noticed.
        #[test]
        fn nonsense_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut decoder = Decoder::new(Encoding::Gzip);
            decoder.push(&bytes);
            let mut taken = 0;
            while let Ok(Some(_)) = decoder.next_payload() {
                taken += 1;
                prop_assert!(taken <= bytes.len() / PREFIX);
            }
            let _ = decoder.finish();
        }

        /// Written messages are read back, in both encodings.
        #[test]
        fn messages_come_back(cmd in "\\PC{0,16}", args in prop::collection::vec("\\PC{0,8}", 0..4)) {
            let process = sandcove_wire::envd::process::ProcessConfig { cmd, args, ..Default::default() };
            let message = StartRequest { process: Some(process), stdin: Some(false), ..Default::default() };
            for codec in [Codec::Json, Codec::Proto] {
                let mut out = Vec::new();
                write_message(codec, &message, &mut out).unwrap();
                let mut decoder = Decoder::new(Encoding::Identity);
                decoder.push(&out);
                let payload = decoder.next_payload().unwrap().unwrap();
                prop_assert_eq!(&codec.decode::<StartRequest>(payload).unwrap(), &message);
            }
        }
    }
}
