//! The frames between us and a kernel: a line `<kind> <length>` and then that many bytes.
//!
//! The format is this plain so that a kernel host in any language, a shell included, can speak it without a parser.

use std::ffi::OsStr;
use std::path::Path;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sandcove_wire::interpreter::ExecutionError;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::codec::Decoder;

/// Longest first line of a frame, in bytes.
const HEADER_LIMIT: usize = 64;
/// Largest payload we accept from a kernel, in bytes.
const PAYLOAD_LIMIT: usize = 512 << 20;

/// What we ask of a kernel. Requests are done in order and only [`Request::Execute`] is answered.
#[derive(Debug)]
pub enum Request<'a> {
    /// Replaces all variables of its environment.
    Environment(&'a [u8]),
    /// Changes the directory, if there is such a one.
    Directory(&'a Path),
    /// Sets one variable.
    Set(&'a str, &'a str),
    /// Removes one variable.
    Unset(&'a str),
    /// Runs what first cells run, without a trace. Only Python kernels know it.
    Rehearse,
    /// Runs code.
    Execute(&'a str),
}

impl Request<'_> {
    /// The frame of this request.
    pub fn encode(&self) -> Bytes {
        let (kind, parts): (&str, [&[u8]; 3]) = match self {
            Self::Environment(pairs) => ("environ", [pairs, b"", b""]),
            Self::Directory(path) => ("cwd", [path.as_os_str().as_encoded_bytes(), b"", b""]),
            Self::Set(name, value) => ("env", [name.as_bytes(), b"=", value.as_bytes()]),
            Self::Unset(name) => ("unenv", [name.as_bytes(), b"", b""]),
            Self::Rehearse => ("rehearse", [b"", b"", b""]),
            Self::Execute(code) => ("execute", [code.as_bytes(), b"", b""]),
        };
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let header = format!("{kind} {length}\n");
        let mut frame = BytesMut::with_capacity(header.len() + length);
        frame.put_slice(header.as_bytes());
        for part in parts {
            frame.put_slice(part);
        }
        frame.freeze()
    }
}

/// The payload of [`Request::Environment`].
pub fn environment_block<'a>(variables: impl Iterator<Item = (&'a OsStr, &'a OsStr)>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in variables {
        block.extend_from_slice(name.as_encoded_bytes());
        block.push(b'=');
        block.extend_from_slice(value.as_encoded_bytes());
        block.push(0);
    }
    block
}

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What a kernel tells us.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// It is ready; this is its process id.
    Hello(i32),
    /// It has begun to run the code, as number so and so.
    Started(u64),
    /// Text was written.
    Text(Stream, String),
    /// The writer asked for what it wrote to be seen now.
    Flush(Stream),
    /// A value, or something displayed.
    Shown(Shown),
    /// The code failed.
    Failed(ExecutionError),
    /// The code has ended, one way or the other.
    Done {
        /// The kernel ends too, because the code asked for it.
        leaving: bool,
    },
}

/// Payload of a result.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Shown {
    /// Whether it is the value of the last expression.
    pub main: bool,
    /// MIME types with their representations.
    pub data: Map<String, Value>,
}

/// Why the bytes of a kernel make no sense. User code can write to the socket of its kernel, so this is not a bug of ours.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The socket failed.
    #[error("failed to read from the kernel")]
    Io(#[from] std::io::Error),
    /// The first line is not one of ours.
    #[error("kernel sent a malformed frame header `{0}`")]
    Header(String),
    /// The payload is not what its kind asks for.
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
            let Some(end) = buffer.iter().take(HEADER_LIMIT).position(|byte| *byte == b'\n') else {
                if buffer.len() >= HEADER_LIMIT {
                    return Err(FrameError::Header(
                        String::from_utf8_lossy(&buffer[..HEADER_LIMIT]).into_owned(),
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
        .filter(|(_, length)| *length <= PAYLOAD_LIMIT)
        .ok_or_else(|| FrameError::Header(text.into_owned()))
}

fn parse_frame(kind: &str, payload: &[u8]) -> Option<Frame> {
    let text = || std::str::from_utf8(payload).ok();
    Some(match kind {
        "stdout" => Frame::Text(Stream::Stdout, String::from_utf8_lossy(payload).into_owned()),
        "stderr" => Frame::Text(Stream::Stderr, String::from_utf8_lossy(payload).into_owned()),
        "flush" => Frame::Flush(match text()? {
            "stdout" => Stream::Stdout,
            "stderr" => Stream::Stderr,
            _ => return None,
        }),
        "result" => Frame::Shown(serde_json::from_slice(payload).ok()?),
        "error" => Frame::Failed(serde_json::from_slice(payload).ok()?),
        "started" => Frame::Started(text()?.trim().parse().ok()?),
        "hello" => Frame::Hello(text()?.trim().parse().ok()?),
        "done" => Frame::Done { leaving: payload == b"leaving" },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
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
        let text = Frame::Text(Stream::Stdout, "a\n\n".into());
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

    #[test]
    fn requests_are_frames_too() {
        assert_eq!(Request::Set("A", "b=c").encode(), "env 5\nA=b=c");
        assert_eq!(Request::Execute("é").encode(), "execute 2\né");
        let pairs = [("A", "1"), ("B", "")].map(|(k, v)| (OsStr::new(k), OsStr::new(v)));
        assert_eq!(environment_block(pairs.into_iter()), b"A=1\0B=\0");
    }
}
