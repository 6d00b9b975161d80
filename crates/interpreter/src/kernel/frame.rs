//! The frames that kernels send. A host of our own writes frames of a line `<kind> <length>` and then that many bytes.
//!
//! The format is this plain so that a kernel host in any language, a shell included, can speak it without a parser.

use bytes::{Buf, BytesMut};
use sandcove_wire::interpreter::ExecutionError;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::codec::Decoder;

use crate::readable::readable;

/// Limit on the first line of a frame, in bytes.
const MAX_HEADER: usize = 64;
/// Limit on the payload of a frame, in bytes.
const MAX_PAYLOAD: usize = 512 << 20;

/// An output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A frame: the unit of what a kernel says.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// The kernel with this process id is ready.
    Hello(i32),
    /// The kernel has begun to run the code; the number counts its executions.
    Started(u64),
    /// Text was written to a stream.
    Output(Stream, String),
    /// The code flushed a stream, so what it wrote should be shown now.
    Flush(Stream),
    /// The code has a value, or displayed something.
    Result(Bundle),
    /// The code failed.
    Error(ExecutionError),
    /// The code has ended, whether or not it failed.
    Done {
        /// Whether the kernel ends too, because the code asked for it.
        leaving: bool,
    },
}

/// The representations of one value.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Bundle {
    /// Whether the value is that of the last expression.
    pub main: bool,
    /// Representations by MIME type.
    pub data: Map<String, Value>,
}

/// An error in the bytes a kernel sent. User code can write to the socket of its kernel, so this need not be a bug of ours.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The socket failed.
    #[error("failed to read from the kernel")]
    Io(#[from] std::io::Error),
    /// The first line of a frame is malformed.
    #[error("kernel sent a malformed frame header `{0}`")]
    Header(String),
    /// The payload of a frame does not fit its kind.
    #[error("kernel sent a malformed `{0}` frame")]
    Payload(String),
}

/// Cuts the bytes of a kernel into frames.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    /// Kind and length of the frame whose payload is still coming.
    header: Option<(String, usize)>,
}

impl Decoder for FrameDecoder {
    type Item = Frame;
    type Error = FrameError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        if self.header.is_none() {
            let Some(end) = buffer.iter().take(MAX_HEADER).position(|byte| *byte == b'\n') else {
                if buffer.len() >= MAX_HEADER {
                    return Err(FrameError::Header(
                        String::from_utf8_lossy(&buffer[..MAX_HEADER]).into_owned(),
                    ));
                }
                return Ok(None);
            };
            let line = buffer.split_to(end + 1);
            self.header = Some(parse_header(&line[..end])?);
        }
        let Some((_, length)) = &self.header else { return Ok(None) };
        if buffer.len() < *length {
            buffer.reserve(*length - buffer.len());
            return Ok(None);
        }
        let Some((kind, length)) = self.header.take() else { return Ok(None) };
        let frame = parse_frame(&kind, &buffer[..length]).ok_or(FrameError::Payload(kind))?;
        buffer.advance(length);
        Ok(Some(frame))
    }
}

fn parse_header(line: &[u8]) -> Result<(String, usize), FrameError> {
    let text = String::from_utf8_lossy(line);
    text.split_once(' ')
        .and_then(|(kind, length)| Some((kind.to_owned(), length.parse().ok()?)))
        .filter(|(_, length)| *length <= MAX_PAYLOAD)
        .ok_or_else(|| FrameError::Header(text.into_owned()))
}

fn parse_frame(kind: &str, payload: &[u8]) -> Option<Frame> {
    let text = || std::str::from_utf8(payload).ok();
    Some(match kind {
        "stdout" => Frame::Output(Stream::Stdout, String::from_utf8_lossy(payload).into_owned()),
        "stderr" => Frame::Output(Stream::Stderr, String::from_utf8_lossy(payload).into_owned()),
        "flush" => Frame::Flush(match text()? {
            "stdout" => Stream::Stdout,
            "stderr" => Stream::Stderr,
            _ => return None,
        }),
        "result" => Frame::Result(serde_json::from_value(readable(payload)?).ok()?),
        "error" => Frame::Error(serde_json::from_slice(payload).ok()?),
        "started" => Frame::Started(text()?.trim().parse().ok()?),
        "hello" => Frame::Hello(text()?.trim().parse().ok()?),
        "done" => Frame::Done { leaving: payload == b"leaving" },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;

    use super::*;

    fn decode_all(bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
        let (mut decoder, mut buffer, mut frames) = (FrameDecoder::default(), BytesMut::new(), Vec::new());
        for byte in bytes {
            buffer.put_u8(*byte);
            while let Some(frame) = decoder.decode(&mut buffer)? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    #[test]
    fn frames_are_found_in_bytes_that_come_one_by_one() {
        let frames = decode_all(b"hello 2\n17started 1\n3stdout 3\na\n\ndone 0\n").unwrap();
        let text = Frame::Output(Stream::Stdout, "a\n\n".into());
        assert_eq!(frames, [Frame::Hello(17), Frame::Started(3), text, Frame::Done { leaving: false }]);
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(matches!(decode_all(b"stdout x\n"), Err(FrameError::Header(_))));
        assert!(matches!(decode_all(&[b'a'; 100]), Err(FrameError::Header(_))));
        assert!(matches!(decode_all(b"stdout 99999999999\n"), Err(FrameError::Header(_))));
        assert!(matches!(decode_all(b"result 2\n[]"), Err(FrameError::Payload(kind)) if kind == "result"));
        assert!(matches!(decode_all(b"what 0\n"), Err(FrameError::Payload(_))));
    }
}
