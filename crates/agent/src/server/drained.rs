//! Request bodies that are read to their end even if the request is refused. A client that is still sending when the agent
//! answers and closes the connection sees a broken connection and not the answer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http::header::EXPECT;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

/// How long the rest of a refused request is read and discarded.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// The body of a request. When dropped, the rest is read and discarded.
pub(super) struct Drained {
    body: Option<Body>,
    /// Whether the client sends the body only when it is asked for, which the first read does.
    waits: bool,
}

impl Drained {
    /// Takes the body of `request`.
    pub(super) fn of(request: Request<Body>) -> Request<Self> {
        let waits = request.headers().contains_key(EXPECT);
        request.map(|body| Self { body: Some(body), waits })
    }
}

impl http_body::Body for Drained {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.waits = false;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), |body| body.size_hint())
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        if let Some(mut body) = self.body.take()
            && !self.waits
            && !body.is_end_stream()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(tokio::time::timeout(DRAIN_TIMEOUT, async move {
                while let Some(Ok(_)) = body.frame().await {}
            }));
        }
    }
}
