//! How requests get to a running kernel and frames come back: over a socket for our own hosts, through the channels of a
//! session task for Jupyter kernels. The rest of the crate does not see the difference.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::mpsc;
use tokio_util::codec::FramedRead;

use super::frame::{Frame, FrameDecoder};
use super::request::Request;

/// Requests that wait for a kernel to read them. A context sends less than ten between the start or end of one execution
/// and the end of the next, so only a kernel that does not read lets this fill.
const MAX_WAITING_REQUESTS: usize = 16;
/// How long a full queue is waited for. The context must stay able to restart a kernel that never reads again.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Frames of a session that wait for an execution to take them. Then the session stops reading, and a Jupyter kernel that
/// goes on publishing drops what does not fit: its sockets cannot make it wait.
const MAX_WAITING_FRAMES: usize = 4096;

/// Both directions between the interpreter and one kernel.
#[derive(Debug)]
pub(super) struct Transport {
    requests: mpsc::Sender<Request>,
    frames: FrameSource,
}

/// Where the frames of a kernel come from.
#[derive(Debug)]
enum FrameSource {
    Socket(FramedRead<OwnedReadHalf, FrameDecoder>),
    Session(mpsc::Receiver<Frame>),
}

/// The context's ends of the channels to a session: a task that turns requests into the messages of another protocol,
/// and messages into frames. The session ends when they are dropped.
#[derive(Debug)]
pub struct Session {
    requests: mpsc::Sender<Request>,
    frames: mpsc::Receiver<Frame>,
}

/// The ends of a [`Session`]'s channels that its task holds.
#[derive(Debug)]
pub struct SessionEnds {
    /// Requests to the kernel.
    pub requests: mpsc::Receiver<Request>,
    /// Frames from the kernel.
    pub frames: mpsc::Sender<Frame>,
}

impl Session {
    /// Two bounded channels.
    pub fn channels() -> (Self, SessionEnds) {
        let (requests, their_requests) = mpsc::channel(MAX_WAITING_REQUESTS);
        let (their_frames, frames) = mpsc::channel(MAX_WAITING_FRAMES);
        (Self { requests, frames }, SessionEnds { requests: their_requests, frames: their_frames })
    }
}

impl From<Session> for Transport {
    fn from(session: Session) -> Self {
        Self { requests: session.requests, frames: FrameSource::Session(session.frames) }
    }
}

impl Transport {
    /// The transport of a host of our own that has said hello.
    pub(super) fn socket(
        frames: FramedRead<OwnedReadHalf, FrameDecoder>,
        writer: impl AsyncWrite + Unpin + Send + 'static,
    ) -> Self {
        Self { requests: request_writer(writer), frames: FrameSource::Socket(frames) }
    }

    /// Waits for the next frame; `None` when the kernel is gone or sent something malformed. Cancellation loses nothing.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        match &mut self.frames {
            FrameSource::Socket(frames) => {
                frames.next().await?.inspect_err(|error| tracing::warn!(%error, "lost a kernel")).ok()
            }
            FrameSource::Session(frames) => frames.recv().await,
        }
    }

    /// Queues a request, and waits a while for room if the kernel has not read earlier ones; then the request is lost. A
    /// kernel that is gone shows in [`Transport::next`].
    pub(super) async fn send(&self, request: Request) {
        if self.requests.send_timeout(request, SEND_TIMEOUT).await.is_err() {
            tracing::debug!("a kernel is gone or does not read its requests");
        }
    }
}

/// Writes requests in a task of its own, so that a kernel that is slow to read does not stop its frames from being read.
fn request_writer(mut writer: impl AsyncWrite + Unpin + Send + 'static) -> mpsc::Sender<Request> {
    let (requests, mut queue) = mpsc::channel::<Request>(MAX_WAITING_REQUESTS);
    tokio::spawn(async move {
        while let Some(request) = queue.recv().await {
            if let Err(error) = writer.write_all(&request.encode()).await {
                tracing::debug!(%error, "failed to write to a kernel");
                return;
            }
        }
    });
    requests
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::AsyncReadExt;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn requests_wait_for_a_kernel_that_does_not_read_and_none_is_lost() {
        let (writer, mut kernel) = tokio::io::duplex(1);
        let requests = request_writer(writer);
        let mut sent = 0_usize;
        let waiting = loop {
            let (sender, request) = (requests.clone(), Request::Execute(format!("{sent:02}")));
            let mut sending = Box::pin(async move { sender.send(request).await });
            // The writer's task gets its turn to take one.
            tokio::task::yield_now().await;
            if (&mut sending).now_or_never().is_none() {
                break sending;
            }
            sent += 1;
        };
        assert!((MAX_WAITING_REQUESTS..=MAX_WAITING_REQUESTS + 1).contains(&sent), "{sent}");
        drop(requests);
        let mut read = String::new();
        let (sent_last, received) = tokio::join!(waiting, kernel.read_to_string(&mut read));
        sent_last.unwrap();
        received.unwrap();
        let expected: String = (0..=sent).map(|number| format!("execute 2\n{number:02}")).collect();
        assert_eq!(read, expected);
    }
    #[tokio::test(start_paused = true)]
    async fn a_request_to_a_kernel_that_never_reads_is_lost_after_a_while() {
        let (session, mut kernel) = Session::channels();
        let transport = Transport::from(session);
        let began = Instant::now();
        for number in 0..MAX_WAITING_REQUESTS {
            transport.send(Request::Execute(number.to_string())).await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        transport.send(Request::Interrupt).await;
        assert!((SEND_TIMEOUT..SEND_TIMEOUT * 2).contains(&began.elapsed()), "{:?}", began.elapsed());
        // Room again: a request gets through, and only the one in between is lost.
        assert_eq!(kernel.requests.recv().await, Some(Request::Execute("0".to_owned())));
        transport.send(Request::WarmUp).await;
        drop(transport);
        let mut rest = Vec::new();
        while let Some(request) = kernel.requests.recv().await {
            rest.push(request);
        }
        let waiting = (1..MAX_WAITING_REQUESTS).map(|number| Request::Execute(number.to_string()));
        assert_eq!(rest, waiting.chain([Request::WarmUp]).collect::<Vec<_>>());
    }
}
