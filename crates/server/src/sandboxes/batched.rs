//! A TCP stream of which the body of a long answer is read in large pieces. A service writes 32 or 64 KiB at a time; to wake for each of
//! them takes the processor from the service each time, and costs a sixth of the throughput on two processors.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sandcove_isolate::{bound_received, wake_at};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// Size of a piece, bytes. The kernel makes a socket's buffer twice as large, and allows no more than half of the largest one, which is 6 MiB by
/// default. A piece takes several reads, and the kernel does not wake anyone for what arrives between them.
const PIECE: u32 = 3 << 20;
/// Bytes at the end of a body that are read as they come. More than a piece, and what was read of the body before its length was known.
const END: u64 = 4 << 20;
/// Bytes that are read as they come after a piece took too long.
const AFTER_PAUSE: u64 = 1 << 20;
/// Time that a part of a piece waits for the rest.
const PIECE_TIMEOUT: Duration = Duration::from_millis(10);

/// Number of streams that the kernel may hold 6 MiB of, which is the fastest. It holds 1 MiB of each further one: its memory for TCP is one for
/// the host and charged to no sandbox, and clients need not read.
const MAX_LARGE: usize = 64;
/// Number of streams.
static STREAMS: AtomicUsize = AtomicUsize::new(0);

/// Number of bytes that are still expected of a body; 0 while nothing is known. Clones are of the same connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expected(Arc<AtomicU64>);

impl Expected {
    /// Notes the length of a body that begins.
    pub(crate) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// Number of bytes that are left.
    #[cfg(test)]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes bytes that were read, and returns how many are left.
    fn subtract(&self, bytes: u64) -> u64 {
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(bytes)));
        before.map_or(0, |before| before.saturating_sub(bytes))
    }
}

/// A TCP stream that is read in pieces of [`PIECE`] bytes while more than [`END`] is expected.
#[derive(Debug)]
pub(crate) struct Batched {
    stream: TcpStream,
    expected: Expected,
    /// Number of bytes that were read since a piece took too long.
    since_pause: u64,
    /// The time at which the wait for a piece ends; `None` while data is read as it comes.
    timeout: Option<Pin<Box<Sleep>>>,
    /// Whether a piece is being waited for.
    is_waiting: bool,
}

impl Batched {
    pub(crate) fn new(stream: TcpStream, expected: Expected) -> Self {
        if STREAMS.fetch_add(1, Ordering::Relaxed) >= MAX_LARGE
            && let Err(error) = bound_received(&stream)
        {
            tracing::debug!(%error, "failed to bound a buffer of the kernel");
        }
        Self { stream, expected, since_pause: AFTER_PAUSE, timeout: None, is_waiting: false }
    }

    /// Chooses how to go on after a read.
    fn note_read(&mut self, count: u64) {
        self.is_waiting = false;
        self.since_pause = self.since_pause.saturating_add(count);
        let in_pieces = self.expected.subtract(count) > END && self.since_pause >= AFTER_PAUSE;
        let changed = match (&self.timeout, in_pieces) {
            (None, true) => wake_at(&self.stream, PIECE).map(|()| Some(Box::pin(sleep(PIECE_TIMEOUT)))),
            (Some(_), false) => wake_at(&self.stream, 1).map(|()| None),
            _ => return,
        };
        // Without the option, a piece that never comes is waited for only so long.
        if let Ok(timeout) = changed {
            self.timeout = timeout;
        }
    }

    /// Waits for the rest of a piece. When that takes too long, data is read as it comes, and the kernel reports what is there.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(timeout) = &mut self.timeout else { return Poll::Pending };
        if !self.is_waiting {
            self.is_waiting = true;
            timeout.as_mut().reset(Instant::now() + PIECE_TIMEOUT);
        }
        ready!(timeout.as_mut().poll(context));
        (self.timeout, self.is_waiting, self.since_pause) = (None, false, 0);
        Poll::Ready(wake_at(&self.stream, 1))
    }
}

impl Drop for Batched {
    fn drop(&mut self) {
        STREAMS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsyncRead for Batched {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        loop {
            if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(context, buffer) {
                this.note_read((buffer.filled().len() - before) as u64);
                return Poll::Ready(read);
            }
            ready!(this.poll_timeout(context))?;
        }
    }
}

impl AsyncWrite for Batched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const LONG: u64 = 3 * END;

    async fn connected() -> (Batched, Expected, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let expected = Expected::default();
        (Batched::new(stream, expected.clone()), expected, listener.accept().await.unwrap().0)
    }

    fn pattern(length: u64) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    #[tokio::test]
    async fn less_than_a_piece_arrives_while_the_writer_is_silent() {
        let (mut reader, expected, mut writer) = connected().await;
        expected.set(2 * LONG);
        let writes = tokio::spawn(async move {
            writer.write_all(&pattern(END + 1)).await.unwrap();
            let mut answer = [0];
            // The other side answers when it has all, and this one says nothing before.
            writer.read_exact(&mut answer).await.unwrap();
            writer.write_all(b"end").await.unwrap();
        });
        let mut read = vec![0; END as usize + 1];
        reader.read_exact(&mut read).await.unwrap();
        assert!(read == pattern(END + 1));
        reader.write_all(b"!").await.unwrap();
        let mut end = String::new();
        reader.read_to_string(&mut end).await.unwrap();
        assert_eq!(end, "end");
        writes.await.unwrap();
    }

    #[tokio::test]
    async fn pieces_are_waited_for_while_much_is_expected() {
        let (mut reader, expected, mut writer) = connected().await;
        writer.write_all(b"head").await.unwrap();
        reader.read_exact(&mut [0; 4]).await.unwrap();
        assert!(reader.timeout.is_none());
        expected.set(LONG);
        let writes = tokio::spawn(async move {
            writer.write_all(&pattern(LONG)).await.unwrap();
            writer
        });
        reader.read_exact(&mut [0]).await.unwrap();
        assert!(reader.timeout.is_some());
        reader.read_exact(&mut vec![0; (LONG - END) as usize]).await.unwrap();
        assert!(reader.timeout.is_none(), "the end is read as it comes");
        reader.read_exact(&mut vec![0; END as usize - 1]).await.unwrap();
        writes.await.unwrap().write_all(b"x").await.unwrap();
        assert_eq!(reader.read_u8().await.unwrap(), b'x');
    }

    #[tokio::test]
    async fn after_a_pause_data_is_read_as_it_comes() {
        let (mut reader, expected, mut writer) = connected().await;
        expected.set(LONG);
        writer.write_all(b"x").await.unwrap();
        assert_eq!(reader.read_u8().await.unwrap(), b'x');
        assert!(reader.timeout.is_some());
        assert!(tokio::time::timeout(4 * PIECE_TIMEOUT, reader.read_u8()).await.is_err());
        assert!(reader.timeout.is_none());
        writer.write_all(b"y").await.unwrap();
        assert_eq!(reader.read_u8().await.unwrap(), b'y');
        assert!(reader.timeout.is_none());
    }
}
