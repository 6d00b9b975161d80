//! One end of a socket, for a task that both sends and receives.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::frame::{Incoming, MAX_TEXT, Outgoing};

/// Maximum length of a message of the server process, bytes: a key, or the reason of a failure.
const MAX_FROM_SERVER: usize = 64 << 10;

/// One end of a socket for messages in both directions.
#[derive(Debug)]
pub struct Channel {
    stream: Arc<UnixStream>,
    incoming: Incoming,
}

impl Channel {
    /// The end of a socket that was passed on, to a process that is trusted. Needs a tokio runtime.
    ///
    /// # Errors
    /// An error if the descriptor cannot be watched.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        Self::up_to(MAX_TEXT, socket)
    }

    /// The end of a socket to a process that may be hostile: short messages are taken from it, and no others.
    ///
    /// # Errors
    /// As in [`Channel::new`].
    pub fn to_server(socket: OwnedFd) -> io::Result<Self> {
        Self::up_to(MAX_FROM_SERVER, socket)
    }

    fn up_to(max_text: usize, socket: OwnedFd) -> io::Result<Self> {
        let socket = StdUnixStream::from(socket);
        socket.set_nonblocking(true)?;
        let stream = Arc::new(UnixStream::from_std(socket)?);
        Ok(Self { incoming: Incoming::up_to(max_text, stream.clone()), stream })
    }

    /// Sends a message, with a descriptor if it is about one. Not cancellation-safe: half a message may be sent.
    ///
    /// # Errors
    /// An error if the other side is gone.
    pub async fn send<T: Serialize>(&self, message: &T, fd: Option<OwnedFd>) -> io::Result<()> {
        let mut frame = Outgoing::new(message, fd, Vec::new())?;
        self.stream.async_io(Interest::WRITABLE, || frame.write(&self.stream)).await
    }

    /// Waits for the next message; `None` when the other side has closed the socket. Cancellation-safe.
    ///
    /// # Errors
    /// An error if the connection breaks, or what arrives is no message.
    pub async fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        self.incoming.next().await
    }
}
