//! The parts of a multipart upload, of which at most one piece is held in memory.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::header::CONTENT_DISPOSITION;

use super::body::Bytestream;
use super::disposition::parameter;
use super::error::{Error, Result};

/// Limit on bytes that arrive without content of a part, in bytes: headers, and what is read ahead.
const MAX_HEADERS: usize = 4 << 20;

/// A multipart body.
pub(super) struct Multipart {
    parts: multer::Multipart<'static>,
    without_content: Arc<AtomicUsize>,
}

/// A part, which is the stream of its content.
pub(super) struct Part {
    field: multer::Field<'static>,
    without_content: Arc<AtomicUsize>,
}

impl Multipart {
    /// Makes a reader of `body` with the boundary named in `content_type`.
    pub(super) fn new(content_type: &[u8], body: Bytestream) -> Result<Self> {
        let boundary = parameter(content_type, "boundary").and_then(|b| String::from_utf8(b).ok());
        let boundary = boundary.filter(|b| !b.is_empty());
        let boundary = boundary.ok_or_else(|| Error::bad_request("the multipart body has no boundary"))?;
        let without_content = Arc::new(AtomicUsize::new(0));
        let paced = Paced { body, yielded: false, without_content: Arc::clone(&without_content) };
        Ok(Self { parts: multer::Multipart::new(paced, boundary), without_content })
    }

    /// Reads up to the next part. The one before must have been read or dropped.
    pub(super) async fn next(&mut self) -> Result<Option<Part>> {
        let field = self.parts.next_field().await.map_err(malformed)?;
        Ok(field.map(|field| Part { field, without_content: Arc::clone(&self.without_content) }))
    }
}

impl Part {
    /// The name of the form field.
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.disposition("name").as_deref() == Some(name.as_bytes())
    }

    /// The name of the file as it was sent, with its directories.
    pub(super) fn filename(&self) -> Option<Vec<u8>> {
        self.disposition("filename")
    }

    fn disposition(&self, name: &str) -> Option<Vec<u8>> {
        parameter(self.field.headers().get(CONTENT_DISPOSITION)?.as_bytes(), name)
    }
}

impl Stream for Part {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let item = std::task::ready!(self.field.poll_next_unpin(cx));
        self.without_content.store(0, Ordering::Relaxed);
        Poll::Ready(item.map(|item| item.map_err(malformed)))
    }
}

/// The body as the parser gets it, one piece at a time. The parser would take in everything that is ready before it parses
/// any of it, and would look for the end of headers for ever.
struct Paced {
    body: Bytestream,
    yielded: bool,
    without_content: Arc<AtomicUsize>,
}

impl Stream for Paced {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        if std::mem::take(&mut self.yielded) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let item = std::task::ready!(self.body.as_mut().poll_next(cx));
        self.yielded = true;
        if let Some(Ok(bytes)) = &item {
            let before = self.without_content.fetch_add(bytes.len(), Ordering::Relaxed);
            if before > MAX_HEADERS {
                return Poll::Ready(Some(Err(Error::bad_request("the headers of a part are too long"))));
            }
        }
        Poll::Ready(item)
    }
}

impl From<Error> for Box<dyn std::error::Error + Send + Sync> {
    fn from(error: Error) -> Self {
        Box::new(Carried(error))
    }
}

/// An error of the body on its way through the parser.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
struct Carried(Error);

fn malformed(error: multer::Error) -> Error {
    if let multer::Error::StreamReadFailed(inner) = &error
        && let Some(Carried(ours)) = inner.downcast_ref()
    {
        return ours.clone();
    }
    Error::bad_request(format!("failed to parse the multipart body: {error}"))
}

#[cfg(test)]
mod tests {
    use futures_util::{TryStreamExt, stream};

    use super::*;

    /// Parses `body` cut into pieces of `size` bytes: name, file name and content of each part.
    async fn parse(body: &[u8], size: usize) -> Result<Vec<(bool, Option<Vec<u8>>, Vec<u8>)>> {
        let pieces: Vec<_> = body.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let stream: Bytestream = Box::pin(stream::iter(pieces));
        let mut multipart = Multipart::new(b"multipart/form-data; boundary=\"--b\"", stream)?;
        let mut parts = Vec::new();
        while let Some(part) = multipart.next().await? {
            let (is_file, filename) = (part.is_called("file"), part.filename());
            let content: Vec<Bytes> = part.try_collect().await?;
            parts.push((is_file, filename, content.concat()));
        }
        Ok(parts)
    }

    #[tokio::test]
    async fn parts_are_the_same_however_the_body_is_cut() {
        let body = b"----b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/a/b%22 c\"\r\n\r\n\
            one\r\n--\r\n----\r\n----b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n\r\n----b--\r\n";
        let expected =
            [(true, Some(b"/a/b%22 c".to_vec()), b"one\r\n--\r\n----".to_vec()), (false, None, Vec::new())];
        for size in [1, 2, 3, 7, 64, 1000] {
            assert_eq!(parse(body, size).await.unwrap(), expected, "pieces of {size}");
        }
    }

    #[tokio::test]
    async fn what_is_cut_short_is_an_error() {
        let body = b"----b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\nconte";
        assert!(parse(body, 8).await.is_err());
        assert!(parse(b"", 8).await.is_err());
    }

    #[tokio::test]
    async fn headers_without_end_are_refused() {
        let mut body = b"----b\r\n".to_vec();
        body.resize(MAX_HEADERS * 2, b'x');
        assert!(parse(&body, 64 << 10).await.is_err());
    }

    #[test]
    fn a_boundary_is_needed() {
        for content_type in ["multipart/form-data", "multipart/form-data; boundary=", "multipart/mixed; x=y"]
        {
            let body: Bytestream = Box::pin(stream::empty());
            assert!(Multipart::new(content_type.as_bytes(), body).is_err(), "{content_type}");
        }
    }
}
