//! Request bodies that are read to their end even if the request is refused. A client that is still sending when the agent
//! answers and closes the connection sees a broken connection and not the answer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};

/// How long the rest of a refused request is read and discarded.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// The bytes of a request. When dropped, the rest is read and discarded.
pub(crate) struct Drained(Option<BodyDataStream>);

impl Drained {
    pub(crate) fn new(body: Body) -> Self {
        Self(Some(body.into_data_stream()))
    }
}

impl Stream for Drained {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let item = ready!(body.poll_next_unpin(cx));
        if !matches!(item, Some(Ok(_))) {
            self.0 = None;
        }
        Poll::Ready(item)
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        if let (Some(mut body), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(DRAIN_TIMEOUT, async move {
                while let Some(Ok(_)) = body.next().await {}
            }));
        }
    }
}
