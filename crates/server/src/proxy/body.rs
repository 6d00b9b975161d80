//! Bodies of answers: the API's own, and streams out of a sandbox, which are cut when the sandbox ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::sandboxes::{ConnectionPermit, LiveSession, SandboxConnection, Sent};

/// The reason for which a body ended early. The connection or stream is reset then, which clients look for.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer.
pub(crate) enum Answer {
    Api(axum::body::Body),
    /// A stream of this server's own, which may be silent for long.
    Stream(axum::body::Body),
    Sandbox(SandboxStream),
}

/// Frames of a sandbox's answer, passed on as they come and not copied.
pub(crate) struct SandboxStream {
    /// The exchange; `None` once it broke off.
    exchange: Option<Exchange>,
    end: End,
}

/// An answer of an adapter, which breaks off when the sandbox ends.
pub(super) struct UntilEnded {
    answer: sandcove_legacy::Body,
    end: End,
}

/// The end of a sandbox.
struct End(Pin<Box<WaitForCancellationFutureOwned>>);

/// A frame of a body, or its end.
type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// A request that is being answered. Its connection goes back to the pool when the request was sent and the answer read, both to their
/// end.
struct Exchange {
    answer: Incoming,
    /// Whether the answer was read to its end. An answer without a length does not know.
    is_read: bool,
    live: Arc<LiveSession>,
    port: u16,
    connection: SandboxConnection,
    request: Sent,
    _permit: ConnectionPermit,
}

/// The sandbox ended while its answer was being passed on.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox ended")]
struct SandboxEnded;

impl SandboxStream {
    pub(super) fn new(
        answer: Incoming,
        live: Arc<LiveSession>,
        port: u16,
        (connection, permit): (SandboxConnection, ConnectionPermit),
        request: Sent,
    ) -> Self {
        let end = End::of(&live.ended);
        let is_read = answer.is_end_stream();
        let exchange = Exchange { answer, is_read, live, port, connection, request, _permit: permit };
        Self { exchange: Some(exchange), end }
    }
}

impl End {
    fn of(ended: &CancellationToken) -> Self {
        Self(Box::pin(ended.clone().cancelled_owned()))
    }

    /// Breaks off a body from which nothing comes. One that flows ends with its sandbox anyway.
    fn cut(&mut self, polled: Polled, context: &mut Context<'_>) -> Polled {
        match polled {
            Poll::Pending => self.0.as_mut().poll(context).map(|()| Some(Err(SandboxEnded.into()))),
            ready => ready,
        }
    }
}

impl UntilEnded {
    pub(super) fn new(answer: sandcove_legacy::Body, ended: &CancellationToken) -> Self {
        Self { answer, end: End::of(ended) }
    }
}

impl Body for UntilEnded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.answer).poll_frame(context);
        this.end.cut(polled, context)
    }

    fn is_end_stream(&self) -> bool {
        self.answer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.size_hint()
    }
}

impl Exchange {
    /// Keeps the connection of an answer that was read to its end.
    fn end(self) {
        if self.request.is_whole() && !self.live.ended.is_cancelled() {
            self.live.pool.put(self.port, self.connection);
        }
    }
}

impl Body for SandboxStream {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        let Some(exchange) = &mut this.exchange else { return Poll::Ready(None) };
        match Pin::new(&mut exchange.answer).poll_frame(context) {
            Poll::Ready(Some(Err(error))) => {
                this.exchange = None;
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(frame) => {
                exchange.is_read = frame.is_none() || exchange.answer.is_end_stream();
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => this.end.cut(Poll::Pending, context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.exchange.as_ref().is_none_or(|exchange| exchange.answer.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.exchange.as_ref().map_or_else(SizeHint::default, |exchange| exchange.answer.size_hint())
    }
}

impl Drop for SandboxStream {
    fn drop(&mut self) {
        let Some(mut exchange) = self.exchange.take() else { return };
        // Clients that know the end of a stream by what it says leave before the end of the answer, which is here by then. It is not
        // waited for: what a program says next is for the next client that listens.
        let mut now = Context::from_waker(Waker::noop());
        if exchange.is_read
            || matches!(Pin::new(&mut exchange.answer).poll_frame(&mut now), Poll::Ready(None))
        {
            exchange.end();
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        match self.get_mut() {
            Self::Api(body) | Self::Stream(body) => {
                Pin::new(body).poll_frame(context).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::Sandbox(stream) => Pin::new(stream).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Api(body) | Self::Stream(body) => body.is_end_stream(),
            Self::Sandbox(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Api(body) | Self::Stream(body) => body.size_hint(),
            Self::Sandbox(stream) => stream.size_hint(),
        }
    }
}
