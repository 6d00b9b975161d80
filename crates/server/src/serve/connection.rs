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

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::clients::{InProgress, Place, Unread, Watched};

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
    /// The connection, which holds what was not read.
    watched: Watched,
    /// The whole body, where all of it is in memory from the beginning.
    unread: Option<Arc<Unread>>,
}

/// Bytes of an answer that was not read.
struct Held {
    bytes: Bytes,
    _unread: Arc<Unread>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<B> Resetting<B> {
    pub(super) fn new(
        body: B,
        connection: Option<CutShort>,
        request: Option<InProgress>,
        watched: Watched,
        unread: Option<Unread>,
    ) -> Self {
        Self { body, connection, _request: request, watched, unread: unread.map(Arc::new) }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Resetting<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(context);
        if let (Poll::Ready(Some(Err(_))), Some(connection)) = (&frame, &this.connection) {
            connection.0.store(true, Ordering::Release);
        }
        let hold = |bytes: Bytes| {
            let unread = match &this.unread {
                Some(unread) => unread.clone(),
                None if bytes.is_empty() => return bytes,
                None => Arc::new(this.watched.hold(bytes.len())),
            };
            Bytes::from_owner(Held { bytes, _unread: unread })
        };
        frame.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(hold))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The bytes of a client, in clear.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Whether the client speaks TLS.
    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}

/// Calls a method of the stream within, pinned.
macro_rules! within {
    ($connection:expr, $method:ident($($argument:expr),*)) => {
        match &mut $connection.stream {
            Stream::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).$method($($argument),*),
        }
    };
}

/// A client's connection.
pub(super) struct ClientConnection {
    stream: Stream,
    cut_short: CutShort,
    place: Place,
}

impl ClientConnection {
    pub(super) fn new(stream: Stream, place: Place) -> Self {
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
            && let Err(err) = self.stream.tcp().set_zero_linger()
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
        let read = within!(self, poll_read(context, buffer));
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
        let written = within!(self, poll_write(context, bytes));
        self.note_written(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = within!(self, poll_write_vectored(context, pieces));
        self.note_written(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        within!(self, poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A FIN before the reset, or the end of TLS, would be the ordinary end that clients misread.
        if self.cut_short.get() {
            return Poll::Ready(Ok(()));
        }
        within!(self, poll_shutdown(context))
    }
}
