//! A connection whose first bytes have been read already.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that is read from its first byte again.
#[derive(Debug)]
pub(crate) struct Prefixed<S> {
    read: Vec<u8>,
    at: usize,
    stream: S,
}

impl<S> Prefixed<S> {
    pub(crate) fn new(read: Vec<u8>, stream: S) -> Self {
        Self { read, at: 0, stream }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.at == self.read.len() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let left = &self.read[self.at..];
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..count]);
        self.at += count;
        if self.at == self.read.len() {
            (self.read, self.at) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
