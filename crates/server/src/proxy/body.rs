//! Bodies of answers: the API's own, and streams out of a sandbox, which are cut when the sandbox ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::sandboxes::{ConnectionPermit, LiveSession, SandboxConnection, Sent};

/// The reason for which a body ended early. The connection or stream is reset then, which clients look for.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer.
pub(crate) enum Answer {
    Api(axum::body::Body),
    Sandbox(SandboxStream),
}

/// Frames of a sandbox's answer, passed on as they come and not copied.
pub(crate) struct SandboxStream {
    inner: Incoming,
    live: Arc<LiveSession>,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    port: u16,
    /// The connection, which goes back to the pool when the request was sent and the answer read, both to their end.
    connection: Option<SandboxConnection>,
    request: Sent,
    _permit: ConnectionPermit,
}

/// The sandbox ended while its answer was being passed on.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox ended")]
struct SandboxEnded;

impl SandboxStream {
    pub(super) fn new(
        inner: Incoming,
        live: Arc<LiveSession>,
        port: u16,
        (connection, permit): (SandboxConnection, ConnectionPermit),
        request: Sent,
    ) -> Self {
        let ended = Box::pin(live.ended.clone().cancelled_owned());
        Self { inner, live, ended, port, connection: Some(connection), request, _permit: permit }
    }
}

impl Body for SandboxStream {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.inner).poll_frame(context) {
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
            // Checked only while nothing flows: a stream that flows ends with its sandbox anyway.
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

impl Drop for SandboxStream {
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
            Self::Sandbox(stream) => Pin::new(stream).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Api(body) => body.is_end_stream(),
            Self::Sandbox(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Api(body) => body.size_hint(),
            Self::Sandbox(stream) => stream.size_hint(),
        }
    }
}
