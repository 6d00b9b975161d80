//! What is to be sent to a client, in order and never more than a little: a client that does not read holds up what is running for it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout_at;

use crate::guest::{LargeMessage, SMALL_MESSAGE};

/// Maximum length of a text that is queued without a permission, bytes: the text of a small message, and what is written around it.
const MAX_TEXT: usize = 2 * SMALL_MESSAGE;

/// The way to a client. Clones lead to the same one.
#[derive(Clone)]
pub(crate) struct Outbox {
    sender: mpsc::UnboundedSender<Queued>,
    /// Bytes that may still be queued. A message that is larger takes all of them, and so goes alone.
    room: Arc<Semaphore>,
}

/// The end of the queue where messages are taken out.
pub(crate) struct Outgoing {
    receiver: mpsc::UnboundedReceiver<Queued>,
    room: Arc<Semaphore>,
}

/// A message, and what it holds until it is written.
pub(crate) struct Queued {
    pub(crate) content: Content,
    pub(crate) held: Held,
}

/// The room of a message in the queue, and the permission to keep it in memory.
pub(crate) struct Held {
    _room: OwnedSemaphorePermit,
    pub(crate) large: Option<LargeMessage>,
}

/// A message to a client.
pub(crate) enum Content {
    Text(String),
    Pong(Vec<u8>),
    /// The end of the connection, with a code.
    Close(u16),
}

/// The client is gone, or does not read what others wait for.
#[derive(Debug)]
pub(crate) struct Gone;

impl Outbox {
    /// Makes an empty queue.
    pub(crate) fn new() -> (Self, Outgoing) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(SMALL_MESSAGE));
        (Self { sender, room: room.clone() }, Outgoing { receiver, room })
    }

    /// Queues a message, once there is room for it.
    pub(crate) async fn send(&self, content: Content) -> Result<(), Gone> {
        self.send_held(content, None).await
    }

    /// Queues a text.
    pub(crate) async fn text(&self, text: String) -> Result<(), Gone> {
        self.send(Content::Text(text)).await
    }

    /// Queues a message with the permission to keep it in memory, if it needs one. A message that is too long for the client to have
    /// without one is not sent, and ends the connection.
    pub(crate) async fn send_held(&self, content: Content, large: Option<LargeMessage>) -> Result<(), Gone> {
        let size = match &content {
            Content::Text(text) => text.len(),
            Content::Pong(bytes) => bytes.len(),
            Content::Close(_) => 0,
        };
        if large.is_none() && size > MAX_TEXT {
            tracing::warn!(size, "a message to a client of the first generation is too long");
            self.room.close();
            return Err(Gone);
        }
        let size = u32::try_from(size.clamp(1, SMALL_MESSAGE)).unwrap_or(u32::MAX);
        let room = self.room.clone().acquire_many_owned(size);
        let room = match &large {
            Some(large) => timeout_at(large.deadline, room).await.map_err(|_| Gone)?,
            None => room.await,
        };
        let held = Held { _room: room.map_err(|_| Gone)?, large };
        self.sender.send(Queued { content, held }).map_err(|_| Gone)
    }
}

impl Outgoing {
    /// The next message; `None` when nobody can send one any more.
    pub(crate) async fn next(&mut self) -> Option<Queued> {
        self.receiver.recv().await
    }

    /// The next message, if there is one now.
    pub(crate) fn next_now(&mut self) -> Option<Queued> {
        self.receiver.try_recv().ok()
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.room.close();
    }
}
