//! The two ways in which kernels and we understand each other.

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio_util::codec::FramedRead;

use super::frame::{Frame, FrameDecoder, Request};
use crate::jupyter::{InterruptMode, Session};

/// See the module.
#[derive(Debug)]
pub(super) enum Transport {
    /// Hosts of our own: frames over one socket.
    Frames { frames: FramedRead<OwnedReadHalf, FrameDecoder>, requests: mpsc::UnboundedSender<Bytes> },
    /// Kernels of others.
    Jupyter { session: Session, interrupts: InterruptMode },
}

impl Transport {
    /// Frames both ways, of a kernel that has said hello.
    pub(super) fn frames(frames: FramedRead<OwnedReadHalf, FrameDecoder>, writer: OwnedWriteHalf) -> Self {
        let (requests, queue) = mpsc::unbounded_channel();
        tokio::spawn(write_requests(writer, queue));
        Self::Frames { frames, requests }
    }

    /// The next frame; `None` when the kernel is gone or cannot be understood. Cancellation loses nothing.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        match self {
            Self::Frames { frames, .. } => {
                frames.next().await?.inspect_err(|error| tracing::warn!(%error, "lost a kernel")).ok()
            }
            Self::Jupyter { session, .. } => session.next().await,
        }
    }

    /// Queues a request.
    pub(super) fn request(&self, request: &Request<'_>) {
        match self {
            Self::Frames { requests, .. } => {
                let _ = requests.send(request.encode());
            }
            Self::Jupyter { session, .. } => session.request(request),
        }
    }
}

async fn write_requests(mut writer: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<Bytes>) {
    while let Some(frame) = queue.recv().await {
        if let Err(error) = writer.write_all(&frame).await {
            tracing::debug!(%error, "failed to write to a kernel");
            return;
        }
    }
}
