//! A TCP stream that is read in large pieces while a lot of data flows. A service writes 32 or 64 KiB at a time; to wake for each of them
//! takes the processor from the service each time, and costs a sixth of the throughput on two processors.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use sandcove_isolate::wake_at;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// Bytes that flow before they are waited for in pieces. What is shorter is over in no time, and would only wait for its end.
const FLOWING: usize = 4 << 20;
/// Size of a piece, bytes. The kernel makes a socket's buffer at least twice as large.
const PIECE: u32 = 256 << 10;
/// Longest time that a part of a piece waits for the rest.
const PATIENCE: Duration = Duration::from_millis(1);

/// A TCP stream that is read in pieces of [`PIECE`] bytes while a lot of data flows.
#[derive(Debug)]
pub(crate) struct Batched {
    stream: TcpStream,
    /// Bytes that were read since the last pause.
    flowed: usize,
    /// The time at which the wait for a piece ends; `None` while every byte counts.
    patience: Option<Pin<Box<Sleep>>>,
    /// Whether a piece is being waited for.
    is_waiting: bool,
}

impl Batched {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, flowed: 0, patience: None, is_waiting: false }
    }

    /// Begins to read in pieces if enough has flowed.
    fn note_read(&mut self, count: usize) {
        self.is_waiting = false;
        self.flowed = self.flowed.saturating_add(count);
        if self.patience.is_none() && self.flowed >= FLOWING && wake_at(&self.stream, PIECE).is_ok() {
            self.patience = Some(Box::pin(sleep(PATIENCE)));
        }
    }

    /// Waits for the rest of a piece. When that takes too long, every byte counts again, and the kernel reports those that are here.
    fn poll_patience(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(patience) = &mut self.patience else { return Poll::Pending };
        if !self.is_waiting {
            self.is_waiting = true;
            patience.as_mut().reset(Instant::now() + PATIENCE);
        }
        std::task::ready!(patience.as_mut().poll(context));
        (self.patience, self.is_waiting, self.flowed) = (None, false, 0);
        Poll::Ready(wake_at(&self.stream, 1))
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
                this.note_read(buffer.filled().len() - before);
                return Poll::Ready(read);
            }
            std::task::ready!(this.poll_patience(context))?;
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
