//! Frames: one message as JSON, with at most one descriptor.
//!
//! A frame is a head of five bytes, the length of the text (little-endian) and the number of descriptors, and the text. A descriptor
//! travels with the first byte of its frame, so descriptors arrive in the order of the frames that they belong to.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;

const HEAD: usize = 5;
/// Maximum length of a text, bytes. The longest ones are lists of 50,000 files, and starts with all that a body of the API may have.
pub const MAX_TEXT: usize = 32 << 20;
/// Bytes that are received at once.
const CHUNK: usize = 16 << 10;
/// Descriptors that may arrive at once. More are lost, and the frames that they belong to are refused.
const MAX_FDS: usize = 64;

/// A frame to be sent.
#[derive(Debug)]
pub struct Outgoing {
    bytes: Vec<u8>,
    /// Number of bytes that are sent.
    sent: usize,
    /// A descriptor that is not sent yet.
    fd: Option<OwnedFd>,
    /// Released when the frame has been sent.
    _permits: Vec<OwnedSemaphorePermit>,
}

impl Outgoing {
    /// Writes a message.
    ///
    /// # Errors
    /// If the message is too long.
    pub fn new<T: Serialize>(
        message: &T,
        fd: Option<OwnedFd>,
        permits: Vec<OwnedSemaphorePermit>,
    ) -> io::Result<Self> {
        let mut text = Text(vec![0; HEAD]);
        serde_json::to_writer(&mut text, message)?;
        let Text(mut bytes) = text;
        let head = u32::try_from(bytes.len() - HEAD).map_err(|_| too_long())?;
        bytes[..4].copy_from_slice(&head.to_le_bytes());
        bytes[4] = fd.is_some().into();
        Ok(Self { bytes, sent: 0, fd, _permits: permits })
    }

    /// Writes what is not sent yet, or fails when `stream` takes no more for now.
    pub(crate) fn write(&mut self, stream: &UnixStream) -> io::Result<()> {
        while let Some(left) = self.bytes.get(self.sent..).filter(|left| !left.is_empty()) {
            self.sent += send(stream, left, self.fd.as_ref())?;
            // It goes with the first byte.
            self.fd = None;
        }
        Ok(())
    }
}

/// A frame while its text is written, which is never longer than a text may be.
struct Text(Vec<u8>);

impl Write for Text {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.0.len() - HEAD + piece.len() > MAX_TEXT {
            return Err(too_long());
        }
        self.0.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn send(stream: &UnixStream, bytes: &[u8], fd: Option<&OwnedFd>) -> io::Result<usize> {
    let fds: Option<[BorrowedFd<'_>; 1]> = fd.map(|fd| [fd.as_fd()]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(fds) = &fds {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives frames.
#[derive(Debug)]
pub struct Incoming {
    stream: Arc<UnixStream>,
    received: Received,
}

/// Bytes and descriptors that have arrived and are not taken yet.
#[derive(Debug)]
pub struct Received {
    bytes: Vec<u8>,
    fds: VecDeque<OwnedFd>,
    /// Maximum length of a text, bytes.
    max_text: usize,
    /// Length of the text that was taken last, bytes.
    taken: usize,
}

impl Incoming {
    /// Receives what arrives at `stream`.
    pub fn new(stream: Arc<UnixStream>) -> Self {
        Self::up_to(MAX_TEXT, stream)
    }

    /// Refuses texts that are longer than `max_text` bytes.
    pub fn up_to(max_text: usize, stream: Arc<UnixStream>) -> Self {
        Self { stream, received: Received { bytes: Vec::new(), fds: VecDeque::new(), max_text, taken: 0 } }
    }

    /// Length of the text of the last message, bytes.
    pub fn length(&self) -> usize {
        self.received.taken
    }

    /// Waits for the next message; `None` when the other side has closed the connection. Cancellation-safe.
    ///
    /// # Errors
    /// If the connection breaks, or what arrives is not a frame.
    pub async fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        loop {
            let Self { stream, received } = self;
            if let Some(message) = received.take()? {
                return Ok(Some(message));
            }
            if stream.async_io(Interest::READABLE, || received.receive(stream)).await? == 0 {
                let is_whole = received.bytes.is_empty();
                return if is_whole { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }
}

impl Received {
    /// Bytes that arrive without descriptors.
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), fds: VecDeque::new(), max_text: MAX_TEXT, taken: 0 }
    }

    /// Takes the first frame out of what has arrived, if it is complete.
    ///
    /// # Errors
    /// An error if what has arrived is no frame.
    pub fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
        let [a, b, c, d, count] = *head;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > self.max_text {
            return Err(too_long());
        }
        let Some(text) = rest.get(..length) else { return Ok(None) };
        let message = serde_json::from_slice(text)?;
        let fd = match count {
            0 => None,
            1 => {
                let missing = || io::Error::new(io::ErrorKind::InvalidData, "a descriptor was lost");
                Some(self.fds.pop_front().ok_or_else(missing)?)
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        self.bytes.drain(..HEAD + length);
        self.taken = length;
        Ok(Some((message, fd)))
    }

    /// Receives what there is, or fails if that is nothing; returns the number of bytes, 0 at the end.
    fn receive(&mut self, stream: &UnixStream) -> io::Result<usize> {
        let mut chunk = [0; CHUNK];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(stream, &mut [IoSliceMut::new(&mut chunk)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                self.fds.extend(rights);
            }
        }
        // They come with the first byte of their frames: there are no more of them than frames.
        if self.fds.len() > MAX_FDS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors without messages"));
        }
        self.bytes.extend_from_slice(&chunk[..received.bytes]);
        Ok(received.bytes)
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message between processes of the server is too long")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[tokio::test]
    async fn what_is_no_frame_is_an_error() {
        for bytes in
            [&[0, 0, 0, 255, 0][..], &[2, 0, 0, 0, 0, b'{', b'x'], &[2, 0, 0, 0, 1, b'4', b'2'], &[1]]
        {
            let (near, far) = UnixStream::pair().unwrap();
            let mut far = Incoming::new(Arc::new(far));
            near.writable().await.unwrap();
            near.try_write(bytes).unwrap();
            drop(near);
            assert!(far.next::<u32>().await.is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_not_written_to_its_end() {
        let longest = "x".repeat(MAX_TEXT - 2);
        assert!(Outgoing::new(&longest, None, Vec::new()).is_ok());
        let written = std::cell::Cell::new(0);
        let pieces = (0..4).map(|_| {
            written.set(written.get() + 1);
            &longest[..MAX_TEXT / 2]
        });
        let error = Outgoing::new(&Pieces(std::cell::RefCell::new(pieces)), None, Vec::new()).unwrap_err();
        assert_eq!((error.kind(), written.get()), (ErrorKind::InvalidData, 2));
    }

    /// A sequence whose elements are made when they are written.
    struct Pieces<I>(std::cell::RefCell<I>);

    impl<'a, I: Iterator<Item = &'a str>> Serialize for Pieces<I> {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_seq(&mut *self.0.borrow_mut())
        }
    }

    #[tokio::test]
    async fn a_text_that_is_too_long_is_refused_by_its_head() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut far = Incoming::up_to(10, Arc::new(far));
        near.writable().await.unwrap();
        Outgoing::new(&"12345678", None, Vec::new()).unwrap().write(&near).unwrap();
        assert_eq!(far.next::<String>().await.unwrap().unwrap().0, "12345678");
        assert_eq!(far.length(), 10);
        near.try_write(&[11, 0, 0, 0, 0]).unwrap();
        assert_eq!(far.next::<String>().await.unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
