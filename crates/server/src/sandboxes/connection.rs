//! A connection to a port of a sandbox, on which a service may send only so much before the head of an answer. Interim answers (1xx) have
//! no end otherwise: they are parsed and forgotten as fast as they arrive, on a thread that the whole server shares.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Expected, Upload};

/// Limit on what is read before the head of an answer is complete, interim answers and the head itself, bytes.
/// As much again as is sent is read besides: over HTTP/2 a service says time and again how much more of a request it takes.
const MAX_BEFORE_HEAD: usize = 512 << 10;

/// Limit on what is read at once, bytes. It is also what is kept of a long answer that the client does not read.
const MAX_READ: usize = 256 << 10;
/// Maximum number of header fields of an answer over HTTP/1.
const MAX_HEADERS: usize = 1024;
/// Limit on the head of an answer over HTTP/2, bytes.
const MAX_HEADER_LIST: u32 = 64 << 10;
/// Bytes of an answer over HTTP/2 that a service may send ahead of who reads it. All of them can arrive between the head and the moment at
/// which its task notes it, so that they, with the head, are fewer than [`MAX_BEFORE_HEAD`].
const WINDOW: u32 = 256 << 10;
/// Bytes of a request over HTTP/2 that are kept for a service that does not read.
const MAX_UNREAD: usize = 64 << 10;

/// The version of HTTP that is spoken to a port of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1, which every service speaks.
    Http1,
    /// HTTP/2, which gRPC needs. A connection carries one request at a time all the same.
    Http2,
}

/// A connection to a port of a sandbox.
#[derive(Debug)]
pub(crate) struct SandboxConnection {
    sender: Sender,
    awaited: Arc<AwaitedHead>,
    expected: Expected,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Upload>),
    Http2(http2::SendRequest<Upload>),
}

/// The head of an answer that is awaited.
#[derive(Debug, Default)]
struct AwaitedHead {
    is_awaited: AtomicBool,
    /// Number of bytes read since.
    read: AtomicUsize,
    /// Number of bytes written since.
    written: AtomicUsize,
}

impl SandboxConnection {
    /// Begins to speak `protocol` over `stream`, at the bottom of which is the reader of `expected`.
    ///
    /// # Errors
    /// When the connection ends at once.
    pub(crate) async fn handshake(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        protocol: Protocol,
        expected: Expected,
    ) -> io::Result<Self> {
        let awaited = Arc::<AwaitedHead>::default();
        let limited = TokioIo::new(Limited { stream, awaited: awaited.clone() });
        let sender = match protocol {
            Protocol::Http1 => Self::http1(limited).await,
            Protocol::Http2 => Self::http2(limited).await,
        };
        Ok(Self { sender: sender.map_err(io::Error::other)?, awaited, expected })
    }

    async fn http1<S>(limited: TokioIo<Limited<S>>) -> hyper::Result<Sender>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        // Header names as Go's proxies write them, whatever the client wrote: some services depend on the spelling (contract:
        // envd, section 9).
        let (sender, connection) = http1::Builder::new()
            .title_case_headers(true)
            .max_buf_size(MAX_READ)
            .max_headers(MAX_HEADERS)
            .handshake(limited)
            .await?;
        tokio::spawn(async move { note_end(connection.with_upgrades().await) });
        Ok(Sender::Http1(sender))
    }

    async fn http2<S>(limited: TokioIo<Limited<S>>) -> hyper::Result<Sender>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .max_header_list_size(MAX_HEADER_LIST)
            .max_send_buf_size(MAX_UNREAD)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(limited)
            .await?;
        tokio::spawn(async move { note_end(connection.await) });
        Ok(Sender::Http2(sender))
    }

    /// The protocol that is spoken.
    pub(crate) fn protocol(&self) -> Protocol {
        match self.sender {
            Sender::Http1(_) => Protocol::Http1,
            Sender::Http2(_) => Protocol::Http2,
        }
    }

    /// Sends a request, and waits for the head of its answer. A connection on which this was cancelled closes.
    ///
    /// # Errors
    /// When the connection ends before; the error has the request if nothing of it was sent.
    pub(crate) async fn send(
        &mut self,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Upload>>> {
        self.awaited.read.store(0, Ordering::Relaxed);
        self.awaited.written.store(0, Ordering::Relaxed);
        self.awaited.is_awaited.store(true, Ordering::Relaxed);
        self.expected.set(0);
        let answer = match &mut self.sender {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(sender) => sender.try_send_request(request).await,
        };
        self.awaited.is_awaited.store(false, Ordering::Relaxed);
        // Over HTTP/2, a service sends no more than a window at once.
        if let (Sender::Http1(_), Ok(answer)) = (&self.sender, &answer) {
            self.expected.set(answer.body().size_hint().exact().unwrap_or(0));
        }
        answer
    }

    /// Whether the service has sent anything since the last request.
    pub(crate) fn was_answered(&self) -> bool {
        self.awaited.read.load(Ordering::Relaxed) > 0
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    /// Whether a request can be sent at once.
    pub(crate) fn is_ready(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_ready(),
            Sender::Http2(sender) => sender.is_ready(),
        }
    }
}

fn note_end(ended: hyper::Result<()>) {
    if let Err(err) = ended {
        tracing::debug!(error = %err, "connection to a sandbox ended early");
    }
}

/// A stream that fails when too much comes before the head of an answer.
struct Limited<S> {
    stream: S,
    awaited: Arc<AwaitedHead>,
}

impl<S> Limited<S> {
    fn note(&self, written: io::Result<usize>) -> Poll<io::Result<usize>> {
        if let Ok(count) = written {
            self.awaited.written.fetch_add(count, Ordering::Relaxed);
        }
        Poll::Ready(written)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if self.awaited.is_awaited.load(Ordering::Relaxed) {
            let count = buffer.filled().len() - before;
            let limit = MAX_BEFORE_HEAD.saturating_add(self.awaited.written.load(Ordering::Relaxed));
            // What arrives with the head may be of the body, so only the reads before count.
            if self.awaited.read.fetch_add(count, Ordering::Relaxed) > limit {
                return Poll::Ready(Err(io::Error::other("too much before the head of an answer")));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, parts));
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::super::Batched;
    use super::*;

    const LENGTH: usize = 8 << 20;

    /// A connection to a service that answers each request with this head and body.
    async fn connected(head: &'static str, body: Vec<u8>) -> SandboxConnection {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let mut service = listener.accept().await.unwrap().0;
            while service.read(&mut [0; 4096]).await.unwrap() > 0 {
                service.write_all(head.as_bytes()).await.unwrap();
                service.write_all(&body).await.unwrap();
            }
        });
        let expected = Expected::default();
        let stream = Batched::new(TcpStream::connect(address).await.unwrap(), expected.clone());
        SandboxConnection::handshake(stream, Protocol::Http1, expected).await.unwrap()
    }

    async fn ask(connection: &mut SandboxConnection) -> Response<Incoming> {
        let request = Request::get("/").header("host", "localhost").body(Upload::empty()).unwrap();
        connection.send(request).await.map_err(TrySendError::into_error).unwrap()
    }

    #[tokio::test]
    async fn the_length_of_a_body_is_expected_until_it_was_read() {
        let body: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
        let mut connection =
            connected("HTTP/1.1 200 OK\r\nContent-Length: 8388608\r\n\r\n", body.clone()).await;
        for _ in 0..2 {
            let answer = ask(&mut connection).await;
            assert!(connection.expected.get() > LENGTH as u64 / 2);
            assert!(answer.into_body().collect().await.unwrap().to_bytes() == body);
            // What came with the head is not known to be of the body.
            assert!(connection.expected.get() < LENGTH as u64 / 4);
            while !connection.is_ready() {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn an_answer_may_have_hundreds_of_header_fields() {
        let fields: String = (0..500).map(|n| format!("X-Label-{n}: {n}\r\n")).collect();
        let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n").leak();
        let mut connection = connected(head, Vec::new()).await;
        assert_eq!(ask(&mut connection).await.headers().len(), 501);
    }

    #[tokio::test]
    async fn nothing_is_expected_of_an_answer_without_a_length() {
        let mut connection =
            connected("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Vec::new()).await;
        connection.expected.set(1);
        ask(&mut connection).await;
        assert_eq!(connection.expected.get(), 0);
    }
}
