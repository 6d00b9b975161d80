//! The client side of ZMTP 3.0, the wire protocol of ZeroMQ, as far as kernels need it: one TCP connection a socket, no
//! security mechanism, whole messages.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::codec::{Decoder, FramedRead};

/// Limit on a message, all parts together, in bytes.
const MAX_MESSAGE: u64 = 512 << 20;
/// Limit on the parts of a message.
const MAX_PARTS: usize = 4096;
/// Length of the greeting both sides begin with.
const GREETING: usize = 64;

/// Flags in the first byte of a frame.
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// The kinds of socket that a client of a kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketType {
    /// Requests and replies in any order.
    Dealer,
    /// Everything that the kernel publishes.
    Subscriber,
}

/// An error of a connection or in the bytes that came over it. Code in a sandbox can listen where a kernel should, so this
/// need not be a bug of ours.
#[derive(Debug, thiserror::Error)]
pub enum ZmtpError {
    /// The connection failed.
    #[error("failed to talk to the kernel's socket")]
    Io(#[from] io::Error),
    /// The other side speaks something else.
    #[error("kernel's socket does not speak ZMTP 3 without security")]
    Greeting,
    /// A ZMTP frame is malformed.
    #[error("kernel sent a malformed frame: {0}")]
    Frame(&'static str),
}

/// A connection after the handshake.
#[derive(Debug)]
pub struct Socket {
    /// Messages from the kernel.
    pub messages: FramedRead<OwnedReadHalf, MessageDecoder>,
    /// The half that messages to the kernel are written to.
    pub writer: OwnedWriteHalf,
}

impl Socket {
    /// Does the handshake on `stream`. A router distinguishes the sockets of its clients by `identity`; a subscriber subscribes
    /// to everything.
    ///
    /// # Errors
    /// If the other side does not speak the protocol.
    pub async fn open(mut stream: TcpStream, kind: SocketType, identity: &str) -> Result<Self, ZmtpError> {
        stream.set_nodelay(true)?;
        stream.write_all(&greeting()).await?;
        stream.write_all(&ready(kind, identity)).await?;
        let mut theirs = [0; GREETING];
        stream.read_exact(&mut theirs).await?;
        check_greeting(&theirs)?;
        if kind == SocketType::Subscriber {
            // The empty topic, which every message begins with.
            stream.write_all(&encode(&[&[1]])).await?;
        }
        let (reader, writer) = stream.into_split();
        Ok(Self { messages: FramedRead::new(reader, MessageDecoder::default()), writer })
    }

    /// Sends one message.
    ///
    /// # Errors
    /// If the connection is gone.
    pub async fn send(&mut self, parts: &[Bytes]) -> io::Result<()> {
        let parts: Vec<&[u8]> = parts.iter().map(Bytes::as_ref).collect();
        self.writer.write_all(&encode(&parts)).await
    }
}

fn greeting() -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[0] = 0xff;
    bytes[9] = 0x7f;
    // Version 3.0; then the name of the mechanism, filled up with zeros.
    bytes[10] = 3;
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

fn check_greeting(bytes: &[u8; GREETING]) -> Result<(), ZmtpError> {
    let mechanism = &bytes[12..32];
    let is_null = mechanism.starts_with(b"NULL") && mechanism[4..].iter().all(|byte| *byte == 0);
    if bytes[0] == 0xff && bytes[9] & 1 == 1 && bytes[10] >= 3 && is_null {
        Ok(())
    } else {
        Err(ZmtpError::Greeting)
    }
}

/// The command that ends the handshake and names the kind of socket.
fn ready(kind: SocketType, identity: &str) -> Bytes {
    let kind = match kind {
        SocketType::Dealer => "DEALER",
        SocketType::Subscriber => "SUB",
    };
    let mut body = BytesMut::from(&b"\x05READY"[..]);
    for (name, value) in [("Socket-Type", kind), ("Identity", identity)] {
        body.put_u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
        body.put_slice(name.as_bytes());
        body.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        body.put_slice(value.as_bytes());
    }
    let mut frame = BytesMut::new();
    put_frame(&mut frame, COMMAND, &body);
    frame.freeze()
}

/// Encodes one message.
pub fn encode(parts: &[&[u8]]) -> Bytes {
    let mut frames = BytesMut::with_capacity(parts.iter().map(|part| part.len() + 9).sum());
    for (index, part) in parts.iter().enumerate() {
        let flags = if index + 1 < parts.len() { MORE } else { 0 };
        put_frame(&mut frames, flags, part);
    }
    frames.freeze()
}

fn put_frame(frames: &mut BytesMut, flags: u8, body: &[u8]) {
    if let Ok(length) = u8::try_from(body.len()) {
        frames.put_u8(flags);
        frames.put_u8(length);
    } else {
        frames.put_u8(flags | LONG);
        frames.put_u64(body.len() as u64);
    }
    frames.put_slice(body);
}

/// Cuts the bytes of a connection into messages. Commands are skipped: the only one that matters ends the handshake and names
/// the kind of socket, which the port implies already.
#[derive(Debug, Default)]
pub struct MessageDecoder {
    /// Parts of a message whose rest is still coming, and how many bytes they are.
    parts: Vec<Bytes>,
    size: u64,
}

impl Decoder for MessageDecoder {
    type Item = Vec<Bytes>;
    type Error = ZmtpError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ZmtpError> {
        loop {
            let Some((flags, header, length)) = frame_header(buffer)? else { return Ok(None) };
            if self.size.saturating_add(length) > MAX_MESSAGE || self.parts.len() == MAX_PARTS {
                return Err(ZmtpError::Frame("message is too large"));
            }
            let Ok(length_here) = usize::try_from(length) else {
                return Err(ZmtpError::Frame("message is too large"));
            };
            if buffer.len() < header + length_here {
                buffer.reserve(header + length_here - buffer.len());
                return Ok(None);
            }
            buffer.advance(header);
            let body = buffer.split_to(length_here).freeze();
            if flags & COMMAND != 0 {
                continue;
            }
            self.size += length;
            self.parts.push(body);
            if flags & MORE == 0 {
                self.size = 0;
                return Ok(Some(std::mem::take(&mut self.parts)));
            }
        }
    }
}

/// Reads the flags, the header length and the body length of the frame at the start of `buffer`, once they are there.
fn frame_header(buffer: &[u8]) -> Result<Option<(u8, usize, u64)>, ZmtpError> {
    let Some(&flags) = buffer.first() else { return Ok(None) };
    if flags & !(MORE | LONG | COMMAND) != 0 || flags & (MORE | COMMAND) == MORE | COMMAND {
        return Err(ZmtpError::Frame("unknown flags"));
    }
    if flags & LONG == 0 {
        return Ok(buffer.get(1).map(|length| (flags, 2, u64::from(*length))));
    }
    let length = buffer.get(1..9).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
    Ok(length.map(|length| (flags, 9, length)))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn decode_in_pieces(bytes: &[u8], piece: usize) -> Result<Vec<Vec<Bytes>>, ZmtpError> {
        let (mut decoder, mut buffer, mut messages) =
            (MessageDecoder::default(), BytesMut::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            buffer.put_slice(piece);
            while let Some(message) = decoder.decode(&mut buffer)? {
                messages.push(message);
            }
        }
        Ok(messages)
    }

    #[test]
    fn the_greeting_is_version_three_without_security() {
        let ours = greeting();
        check_greeting(&ours).unwrap();
        assert_eq!(&ours[10..17], b"\x03\x00NULL\x00");
        for (at, byte) in [(0, 0), (9, 0), (10, 1), (12, b'P'), (16, b'X')] {
            let mut other = ours;
            other[at] = byte;
            assert!(matches!(check_greeting(&other), Err(ZmtpError::Greeting)), "byte {at}");
        }
    }

    #[test]
    fn commands_between_messages_are_skipped() {
        let bytes =
            [&ready(SocketType::Dealer, "x")[..], &encode(&[b"a", b""]), b"\x04\x05\x04PING"].concat();
        assert_eq!(decode_in_pieces(&bytes, 1).unwrap(), [vec![Bytes::from("a"), Bytes::new()]]);
    }

    #[test]
    fn malformed_and_oversized_frames_are_errors() {
        assert!(matches!(decode_in_pieces(b"HTTP/1.1 200 OK", 4), Err(ZmtpError::Frame(_))));
        assert!(matches!(decode_in_pieces(b"\x05\x01x", 4), Err(ZmtpError::Frame(_))));
        let oversized = [&[LONG][..], &u64::MAX.to_be_bytes()].concat();
        assert!(matches!(decode_in_pieces(&oversized, 4), Err(ZmtpError::Frame(_))));
        let endless = [MORE, 0].repeat(MAX_PARTS + 1);
        assert!(matches!(decode_in_pieces(&endless, 64), Err(ZmtpError::Frame(_))));
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in(
            messages in vec(vec(vec(any::<u8>(), 0..600), 1..5), 0..5),
            piece in 1_usize..700,
        ) {
            let bytes: Vec<u8> = messages
                .iter()
                .flat_map(|parts| encode(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()))
                .collect();
            let decoded = decode_in_pieces(&bytes, piece).unwrap();
            prop_assert_eq!(decoded, messages.into_iter()
                .map(|parts| parts.into_iter().map(Bytes::from).collect::<Vec<_>>()).collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_messages_or_an_error(bytes in vec(any::<u8>(), 0..300), piece in 1_usize..50) {
            let _ = decode_in_pieces(&bytes, piece);
        }
    }
}
