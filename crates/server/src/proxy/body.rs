//! Bodies of answers: the API's own, and streams out of a sandbox that are cut when it ends.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::pool::Connection;
use crate::sandboxes::Live;

/// Whatever made a body end early; the connection or stream is reset then, which is what clients look for.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer.
pub(crate) enum Answer {
    Api(axum::body::Body),
    Stream(Stream),
}

/// The body of a request on its way into a sandbox; it remembers whether it has gone out to its end.
pub(crate) struct Upload {
    inner: Incoming,
    sent: Sent,
}

/// Whether a request has been sent to its end. A service that answers before that closes the connection after its
/// answer, and nothing says so until the next request on it has failed.
#[derive(Clone, Default)]
pub(super) struct Sent(Arc<AtomicBool>);

impl Upload {
    pub(super) fn new(inner: Incoming) -> Self {
        let upload = Self { inner, sent: Sent::default() };
        upload.note_end();
        upload
    }

    pub(super) fn sent(&self) -> Sent {
        self.sent.clone()
    }

    fn note_end(&self) {
        if self.inner.is_end_stream() {
            self.sent.0.store(true, Ordering::Release);
        }
    }
}

impl Sent {
    fn is_whole(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.inner).poll_frame(context);
        this.note_end();
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Frames of a sandbox's answer, passed on as they come and not copied.
pub(crate) struct Stream {
    inner: Incoming,
    live: Arc<Live>,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    port: u16,
    /// Goes back to the pool when the request was sent and the answer read, both to their end.
    connection: Option<Connection>,
    request: Sent,
}

/// The sandbox ended while its answer was being passed on.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox ended")]
struct SandboxEnded;

impl Stream {
    pub(super) fn new(
        inner: Incoming,
        live: Arc<Live>,
        port: u16,
        connection: Connection,
        request: Sent,
    ) -> Self {
        let ended = Box::pin(live.ended.clone().cancelled_owned());
        Self { inner, live, ended, port, connection: Some(connection), request }
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.inner).poll_frame(context) {
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
            // Only asked when nothing flows: a stream that flows ends with its sandbox anyway.
            Poll::Pending => match this.ended.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Some(Err(SandboxEnded.into()))),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && self.inner.is_end_stream()
            && self.request.is_whole()
            && !self.live.ended.is_cancelled()
        {
            self.live.pool.put(self.port, connection);
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Api(body) => {
                Pin::new(body).poll_frame(context).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::Stream(stream) => Pin::new(stream).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Api(body) => body.is_end_stream(),
            Self::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Api(body) => body.size_hint(),
            Self::Stream(stream) => stream.size_hint(),
        }
    }
}
