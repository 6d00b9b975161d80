//! The body of an upload that is read while it is sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes read at a time.
const CHUNK: usize = 64 << 10;

/// The body of any request.
pub(crate) type RequestBody = http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>;

/// A body that is in memory.
pub(crate) fn whole(bytes: Bytes) -> RequestBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// A body that is what `source` has until its end: `size` bytes, if that is known.
pub(crate) fn streamed(source: impl AsyncRead + Send + Unpin + 'static, size: Option<u64>) -> RequestBody {
    Streamed { source, size, ended: false }.boxed_unsync()
}

struct Streamed<R> {
    source: R,
    size: Option<u64>,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Body for Streamed<R> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut chunk = BytesMut::zeroed(CHUNK);
        let mut buffer = ReadBuf::new(&mut chunk);
        let read = ready!(Pin::new(&mut self.source).poll_read(context, &mut buffer));
        let length = buffer.filled().len();
        self.ended = read.is_err() || length == 0;
        Poll::Ready(match read {
            Err(error) => Some(Err(error)),
            Ok(()) if length == 0 => None,
            Ok(()) => {
                chunk.truncate(length);
                Some(Ok(Frame::data(chunk.freeze())))
            }
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.size.map(SizeHint::with_exact).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_of_the_source_is_sent() {
        let content = vec![7; 3 * CHUNK + 5];
        let body = streamed(io::Cursor::new(content.clone()), None);
        assert_eq!(body.collect().await.unwrap().to_bytes(), content);
        assert!(streamed(tokio::io::empty(), Some(0)).collect().await.unwrap().to_bytes().is_empty());
    }

    #[tokio::test]
    async fn a_source_that_fails_is_an_error() {
        assert!(streamed(broken(), None).collect().await.is_err());
    }

    /// A source that fails after its first bytes.
    fn broken() -> impl AsyncRead + Send + Unpin {
        struct Broken(bool);
        impl AsyncRead for Broken {
            fn poll_read(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                if std::mem::replace(&mut self.0, true) {
                    return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
                }
                buffer.put_slice(b"first");
                Poll::Ready(Ok(()))
            }
        }
        Broken(false)
    }
}
