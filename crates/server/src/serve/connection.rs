//! Connections of clients, which are reset instead of closed once an answer on them was cut short.
//!
//! HTTP/1.1 has no other way to say that a body broke off. Clients of several releases take the ordinary end of a
//! connection for a fault of their own and never ask whether the sandbox is still there; they recognise a reset
//! (contract: envd, section 9.1).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::clients::{InProgress, Place};

/// Whether an answer on a connection was cut short; clones are of the same connection.
#[derive(Debug, Clone, Default)]
pub(super) struct CutShort(Arc<AtomicBool>);

impl CutShort {
    fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The body of an answer whose connection is reset when the body ends in an error. Without a connection, as on HTTP/2,
/// hyper resets the stream alone.
pub(super) struct Resetting<B> {
    body: B,
    connection: Option<CutShort>,
    /// The request, for as long as its connection is not waiting.
    _request: Option<InProgress>,
}

impl<B> Resetting<B> {
    pub(super) fn new(body: B, connection: Option<CutShort>, request: Option<InProgress>) -> Self {
        Self { body, connection, _request: request }
    }
}

impl<B: Body + Unpin> Body for Resetting<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(context);
        if let (Poll::Ready(Some(Err(_))), Some(connection)) = (&frame, &this.connection) {
            connection.0.store(true, Ordering::Release);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A client's connection.
pub(super) struct ClientConnection {
    stream: TcpStream,
    cut_short: CutShort,
    place: Place,
}

impl ClientConnection {
    pub(super) fn new(stream: TcpStream, place: Place) -> Self {
        Self { stream, cut_short: CutShort::default(), place }
    }

    pub(super) fn cut_short(&self) -> CutShort {
        self.cut_short.clone()
    }

    fn note_written(&self, written: &Poll<io::Result<usize>>) {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.place.note_written();
        }
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        if self.cut_short.get()
            && let Err(err) = self.stream.set_zero_linger()
        {
            tracing::debug!(error = %err, "connection could not be reset");
        }
    }
}

impl AsyncRead for ClientConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.place.note_read();
        }
        read
    }
}

impl AsyncWrite for ClientConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note_written(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.note_written(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A FIN before the reset would be the ordinary end that clients misread.
        if self.cut_short.get() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
