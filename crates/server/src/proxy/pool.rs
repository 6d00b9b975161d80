//! Idle connections to the ports of one sandbox, so that a request does not pay for a dial.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyper::client::conn::http1::SendRequest;

use super::body::Upload;

/// A connection to a port of a sandbox.
pub(crate) type Connection = SendRequest<Upload>;

/// Connections kept per port.
const MOST_IDLE: usize = 64;

/// Idle connections by port.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: Mutex<HashMap<u16, Vec<Connection>>>,
}

impl Pool {
    /// A connection that takes a request at once. One whose last exchange has not quite ended stays for later.
    pub(super) fn take(&self, port: u16) -> Option<Connection> {
        let mut idle = self.lock();
        let connections = idle.get_mut(&port)?;
        connections.retain(|connection| !connection.is_closed());
        let ready = connections.iter().rposition(SendRequest::is_ready)?;
        Some(connections.swap_remove(ready))
    }

    /// Keeps a connection whose exchange has ended.
    pub(super) fn put(&self, port: u16, connection: Connection) {
        let mut idle = self.lock();
        let connections = idle.entry(port).or_default();
        if !connection.is_closed() && connections.len() < MOST_IDLE {
            connections.push(connection);
        }
    }

    /// Closes every idle connection.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u16, Vec<Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
