//! Framing of streamed messages: one flag byte, four bytes of length, the payload. Pure, no I/O.

use std::io::Read;

use bytes::{Buf, Bytes, BytesMut};

use super::codec::{Codec, Message};
use super::error::{Code, Error, Result};

/// The payload is compressed.
const COMPRESSED: u8 = 1;
/// The payload is the end-of-stream JSON.
const END_STREAM: u8 = 2;
/// Bytes in front of each payload.
const PREFIX: usize = 5;
/// No message may be longer, before or after decompression: it is held in memory as a whole.
pub const MAX_MESSAGE: usize = 128 << 20;

/// How request payloads may be compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Not at all.
    Identity,
    /// As gzip.
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

    /// Undoes the compression of one whole payload.
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
    /// A decoder for payloads whose compressed ones are in `encoding`.
    pub fn new(encoding: Encoding) -> Self {
        Self { buffer: BytesMut::new(), encoding, ended: false }
    }

    /// Adds bytes as they arrive.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the next whole payload, if it is there. What follows an end-of-stream message is ignored.
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

    /// Says whether the byte stream may end here; an unfinished envelope is an error.
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
    // Neither can fail: a vector takes everything, and the text is far shorter than 4 GiB.
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
