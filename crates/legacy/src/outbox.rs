//! What is to be sent to a client, in order and never more than a little: a client that does not read holds up what is running for it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::guest::{Guest, LargeMessage, SMALL_MESSAGE};

/// The way to a client. Clones lead to the same one.
#[derive(Clone)]
pub(crate) struct Outbox {
    sender: mpsc::UnboundedSender<Queued>,
    /// Bytes that may still be queued.
    room: Arc<Semaphore>,
    guest: Guest,
}

/// The end of the queue where messages are taken out.
pub(crate) struct Outgoing {
    receiver: mpsc::UnboundedReceiver<Queued>,
    room: Arc<Semaphore>,
}

/// A message, and the memory that it may use until it is dropped.
pub(crate) struct Queued {
    pub(crate) content: Content,
    pub(crate) held: Held,
}

/// A message to a client.
pub(crate) enum Content {
    Text(String),
    Pong(Vec<u8>),
    /// The end of the connection, with a code.
    Close(u16),
}

/// The permission to keep a message in memory.
pub(crate) enum Held {
    Room(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit),
    Large(#[expect(dead_code, reason = "held")] LargeMessage),
}

/// The client is gone.
#[derive(Debug)]
pub(crate) struct Gone;

impl Outbox {
    /// Makes an empty queue for a client of `guest`.
    pub(crate) fn new(guest: Guest) -> (Self, Outgoing) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(SMALL_MESSAGE));
        (Self { sender, room: room.clone(), guest }, Outgoing { receiver, room })
    }

    /// Queues a message, once there is room for it.
    pub(crate) async fn send(&self, content: Content) -> Result<(), Gone> {
        let size = match &content {
            Content::Text(text) => text.len(),
            Content::Pong(bytes) => bytes.len(),
            Content::Close(_) => 0,
        };
        let held = match u32::try_from(size.max(1)) {
            Ok(size) if size as usize <= SMALL_MESSAGE => {
                Held::Room(self.room.clone().acquire_many_owned(size).await.map_err(|_| Gone)?)
            }
            _ => Held::Large(self.guest.large_message().await),
        };
        self.sender.send(Queued { content, held }).map_err(|_| Gone)
    }

    /// Queues a text.
    pub(crate) async fn text(&self, text: String) -> Result<(), Gone> {
        self.send(Content::Text(text)).await
    }
}

impl Outgoing {
    /// The next message; `None` when nobody can send one any more.
    pub(crate) async fn next(&mut self) -> Option<Queued> {
        self.receiver.recv().await
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.room.close();
    }
}
