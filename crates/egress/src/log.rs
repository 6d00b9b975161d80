//! The egress log of a sandbox: its last connections through the egress proxy, with the rule that decided each.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::counted::Bytes;

/// Number of connections that are kept of one sandbox; the oldest go first.
const KEPT: usize = 500;

/// A connection in an egress log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Number of the connection; later ones of the sandbox have higher numbers.
    pub number: u64,
    /// Time of the connection, milliseconds since 1970.
    pub began_at: u64,
    /// Time of its end, if it has ended.
    pub ended_at: Option<u64>,
    /// Name of the host, if the connection names one.
    pub host: Option<String>,
    /// Address that the sandbox dialled.
    pub address: Ipv4Addr,
    /// Port that the sandbox dialled.
    pub port: u16,
    /// Whether the rules allow the connection.
    pub is_allowed: bool,
    /// Member of the network rules that decided, and its entry; none if no entry speaks of the connection.
    pub rule: Option<(String, String)>,
    /// Whether the connection goes through a proxy of the user's.
    pub is_proxied: bool,
    /// Whether the requests of the connection get headers.
    pub gets_headers: bool,
    /// The reason for which the connection was refused, failed or cut.
    pub error: Option<String>,
    /// Bytes that the sandbox has sent.
    pub sent: u64,
    /// Bytes that the sandbox has received.
    pub received: u64,
}

/// The log of one sandbox. Clones are of the same log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    entries: Arc<Mutex<VecDeque<(Connection, Bytes)>>>,
    next: Arc<AtomicU64>,
}

/// The entry of a connection in progress. The connection has ended when it is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    log: Log,
    number: u64,
}

impl Log {
    /// Begins the entry of a connection.
    pub(crate) fn begin(&self, dialled: SocketAddrV4, bytes: Bytes) -> Entry {
        let mut entries = self.entries();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Connection {
            number,
            began_at: now(),
            ended_at: None,
            host: None,
            address: *dialled.ip(),
            port: dialled.port(),
            is_allowed: false,
            rule: None,
            is_proxied: false,
            gets_headers: false,
            error: None,
            sent: 0,
            received: 0,
        };
        if entries.len() == KEPT {
            entries.pop_front();
        }
        entries.push_back((connection, bytes));
        Entry { log: self.clone(), number }
    }

    /// The connections, the oldest first.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        let counted = |(connection, bytes): &(Connection, Bytes)| Connection {
            sent: bytes.sent(),
            received: bytes.received(),
            ..connection.clone()
        };
        self.entries().iter().map(counted).collect()
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<(Connection, Bytes)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Changes the entry, if it is still kept.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Connection)) {
        let mut entries = self.log.entries();
        let first = entries.front().map_or(0, |(connection, _)| connection.number);
        let place = usize::try_from(self.number.wrapping_sub(first)).ok();
        if let Some((connection, _)) = place.and_then(|place| entries.get_mut(place)) {
            change(connection);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.update(|connection| connection.ended_at = Some(now()));
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_connections_go_first_and_late_changes_hit_their_own_entry() {
        let log = Log::default();
        let begin = |port| log.begin(SocketAddrV4::new(Ipv4Addr::new(9, 9, 9, 9), port), Bytes::default());
        let first = begin(1);
        let kept: Vec<Entry> = (0..KEPT as u16).map(|port| begin(port + 2)).collect();
        assert_eq!(log.connections().len(), KEPT);
        first.update(|connection| connection.is_allowed = true);
        assert!(log.connections().iter().all(|connection| !connection.is_allowed));
        kept[0].update(|connection| connection.is_allowed = true);
        let connections = log.connections();
        assert!(connections[0].is_allowed && connections[0].port == 2 && connections[0].ended_at.is_none());
        drop(kept);
        assert!(log.connections().iter().all(|connection| connection.ended_at.is_some()));
    }
}
