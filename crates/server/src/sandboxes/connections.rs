//! Connections to the ports of one sandbox: idle ones are kept, so that a request does not pay for a dial.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;

/// A connection to a port of a sandbox.
pub(crate) type SandboxConnection = SendRequest<Upload>;

/// Idle connections kept per port.
const MAX_IDLE: usize = 64;

/// Idle connections by port.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPool {
    idle: Mutex<HashMap<u16, Vec<SandboxConnection>>>,
}

/// The body of a request on its way into a sandbox; records whether it was sent to its end.
pub(crate) struct Upload {
    inner: Incoming,
    sent: Sent,
}

/// Whether a request has been sent to its end. A service that answers before that closes the connection after its
/// answer, and nothing says so until the next request on it has failed.
#[derive(Clone, Default)]
pub(crate) struct Sent(Arc<AtomicBool>);

impl ConnectionPool {
    /// Takes a connection that accepts a request at once. A connection whose last exchange has not quite ended stays.
    pub(crate) fn take(&self, port: u16) -> Option<SandboxConnection> {
        let mut idle = self.lock();
        let connections = idle.get_mut(&port)?;
        connections.retain(|connection| !connection.is_closed());
        let ready = connections.iter().rposition(SendRequest::is_ready)?;
        Some(connections.swap_remove(ready))
    }

    /// Keeps a connection whose exchange has ended.
    pub(crate) fn put(&self, port: u16, connection: SandboxConnection) {
        let mut idle = self.lock();
        let connections = idle.entry(port).or_default();
        if !connection.is_closed() && connections.len() < MAX_IDLE {
            connections.push(connection);
        }
    }

    /// Closes every idle connection.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u16, Vec<SandboxConnection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upload {
    pub(crate) fn new(inner: Incoming) -> Self {
        let upload = Self { inner, sent: Sent::default() };
        upload.note_end();
        upload
    }

    /// The record of whether this body was sent to its end; the body itself goes to the connection.
    pub(crate) fn sent(&self) -> Sent {
        self.sent.clone()
    }

    fn note_end(&self) {
        if self.inner.is_end_stream() {
            self.sent.0.store(true, Ordering::Release);
        }
    }
}

impl Sent {
    /// Whether the request was sent to its end.
    pub(crate) fn is_whole(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.inner).poll_frame(context);
        this.note_end();
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
