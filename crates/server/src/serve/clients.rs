//! The connections of clients: how many there may be, and which are closed because nothing comes of them or others need
//! the room.
//!
//! A connection with a request to a sandbox is never closed here, however slow it is: streams may be silent for as long as
//! they like, and uploads take their time. Any other connection is *waiting*, and has to go on with something: the first
//! request, the rest of a head, the reading of an answer, or another request.
//!
//! Answers are in memory until their clients have read them, and bodies of requests while they come. A connection belongs to the team of its last
//! request, to the visitors of a team's sandboxes if that was for one, and to its address until there is one. When all connections together hold too much, the largest of the owner that holds the most
//! is closed, whatever else it carries. It takes a while until its memory is free; long answers are refused meanwhile, and to an owner that
//! holds a quarter of the limit by itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::memory::{Counted, CountsMemory, Memory};

/// Time that a connection may wait for another request, or for its client to read an answer of the API. As long as the
/// original's (contract: interpreter, section 1).
const WAITING_TIMEOUT: Duration = Duration::from_secs(640);
/// Connections that are closed at once when descriptors have run out.
const ROOM: usize = 64;
/// Maximum size of all answers that clients have not read yet, and of bodies of requests that are read, bytes.
const MAX_UNREAD: usize = 512 << 20;
/// Size up to which an answer is sent in any case, bytes.
const SHORT: usize = 64 << 10;

/// The connections of clients. Clones share them.
#[derive(Clone)]
pub(super) struct Clients {
    table: Arc<Mutex<Table>>,
    /// Size of all answers that were not read, and of bodies that are, bytes.
    unread: Arc<AtomicUsize>,
    limits: Limits,
    /// Time in which a client has to send the head of a request.
    header_timeout: Duration,
}

/// Limits on the number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    all: usize,
    /// For one address, which may be that of a whole company.
    of_peer: usize,
    /// For answers that were not read and bodies that are, bytes.
    unread: usize,
}

#[derive(Default)]
struct Table {
    next: u64,
    connections: BTreeMap<u64, Arc<Connection>>,
    /// Number of connections by address.
    peers: HashMap<IpAddr, usize>,
}

/// A connection in the table.
struct Connection {
    peer: IpAddr,
    /// Cancelled when the connection has to make room.
    closing: CancellationToken,
    /// Size of its answers that were not read, and of bodies that are, bytes.
    unread: AtomicUsize,
    activity: Mutex<Activity>,
}

/// The one for whom a connection holds memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    /// A client that has shown no credentials.
    Peer(IpAddr),
    /// A connection of this host without credentials, by its number: a proxy in front of the server has one address for all its clients.
    Connection(u64),
    Team(Uuid),
    /// A client of a team's sandbox: it takes nothing from the team itself.
    Visitor(Uuid),
}

/// The state of a connection.
struct Activity {
    owner: Owner,
    /// Requests to sandboxes, and of the API until the head of their answer.
    requests: usize,
    /// Whether a request has come.
    is_proven: bool,
    /// Whether the connection carries several requests at once, in frames of which not all belong to one.
    is_framed: bool,
    waiting_since: Instant,
    /// Arrival of the first bytes of a head that is not complete.
    reading_since: Option<Instant>,
}

/// The place of a connection in the table, given up when this is dropped.
pub(super) struct Place {
    id: u64,
    connection: Arc<Connection>,
    table: Arc<Mutex<Table>>,
}

/// A view of a connection, for the task that serves it.
#[derive(Clone)]
pub(super) struct Watched {
    connection: Arc<Connection>,
    clients: Clients,
    header_timeout: Duration,
}

/// Bytes of an answer that its client has not read, or of a body that is being read, until this is dropped.
pub(super) struct Unread {
    connection: Arc<Connection>,
    all: Arc<AtomicUsize>,
    bytes: usize,
}

/// A request in progress: its connection is not waiting until this is dropped.
pub(super) struct InProgress(Arc<Connection>);

impl Limits {
    /// An eighth of the descriptors is for connections of clients.
    fn of(descriptors: usize) -> Self {
        let all = (descriptors / 8).max(64);
        Self { all, of_peer: all / 2, unread: MAX_UNREAD }
    }
}

impl Clients {
    pub(super) fn new(descriptors: usize, header_timeout: Duration) -> Self {
        let limits = Limits::of(descriptors);
        Self { table: Arc::default(), unread: Arc::default(), limits, header_timeout }
    }

    /// Takes a place for a connection from `peer`. When there are too many, one that waits is closed for it: the one that has
    /// waited for longest, of those that never sent a request if there are any. `None` when all are in use.
    pub(super) fn admit(&self, peer: IpAddr) -> Option<Place> {
        let peer = peer.to_canonical();
        let mut table = self.lock();
        // A proxy in front of this server is one address for everybody, and usually on the same machine.
        let is_peer_full = !peer.is_loopback()
            && table.peers.get(&peer).is_some_and(|connections| *connections >= self.limits.of_peer);
        if is_peer_full && !table.close_one(Some(peer)) {
            return None;
        }
        if table.connections.len() >= self.limits.all && !table.close_one(None) {
            return None;
        }
        let id = table.next;
        table.next += 1;
        let connection = Arc::new(Connection::new(peer, id));
        table.connections.insert(id, connection.clone());
        *table.peers.entry(peer).or_default() += 1;
        Some(Place { id, connection, table: self.table.clone() })
    }

    /// Closes connections that wait, so that others can be accepted.
    pub(super) fn make_room(&self) {
        let mut table = self.lock();
        for _ in 0..ROOM {
            if !table.close_one(None) {
                return;
            }
        }
    }

    pub(super) fn watch(&self, place: &Place) -> Watched {
        let (connection, header_timeout) = (place.connection.clone(), self.header_timeout);
        Watched { connection, clients: self.clone(), header_timeout }
    }

    /// Closes the largest connections of those that hold the most, until the rest is not too much.
    fn bound_unread(&self) {
        if self.unread.load(Ordering::Relaxed) <= self.limits.unread {
            return;
        }
        let table = self.lock();
        let mut owners: HashMap<Owner, BTreeSet<(usize, u64)>> = HashMap::new();
        for (id, unread, owner) in table.holding() {
            owners.entry(owner).or_default().insert((unread, id));
        }
        let sum = |held: &BTreeSet<(usize, u64)>| held.iter().map(|(unread, _)| unread).sum::<usize>();
        let mut owners: Vec<_> = owners.into_values().map(|held| (sum(&held), held)).collect();
        let mut left: usize = owners.iter().map(|(sum, _)| sum).sum();
        while left > self.limits.unread
            && let Some((sum, held)) = owners.iter_mut().max_by_key(|(sum, _)| *sum)
            && let Some((unread, id)) = held.pop_last()
        {
            *sum -= unread;
            left -= unread;
            if let Some(connection) = table.connections.get(&id) {
                tracing::warn!(peer = %connection.peer, unread, "connection closed: its client does not read its answers");
                connection.closing.cancel();
            }
        }
    }

    /// The bytes that the connections of `owner` hold.
    fn unread_of(&self, owner: Owner) -> usize {
        self.lock().holding().filter(|(.., of)| *of == owner).map(|(_, unread, _)| unread).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The connections that hold something, with how much and for whom. Those that are closed already release it soon.
    fn holding(&self) -> impl Iterator<Item = (u64, usize, Owner)> {
        self.connections.iter().filter_map(|(id, one)| {
            let unread = one.unread.load(Ordering::Relaxed);
            (unread > 0 && !one.closing.is_cancelled()).then(|| (*id, unread, one.lock().owner))
        })
    }

    /// Closes the connection, of `peer` if one is given, that can be spared most; returns whether there was one.
    fn close_one(&mut self, peer: Option<IpAddr>) -> bool {
        let of_peer = self.connections.iter().filter(|(_, one)| peer.is_none_or(|peer| one.peer == peer));
        let waiting = of_peer.filter_map(|(id, one)| {
            let activity = one.lock();
            (activity.requests == 0).then_some(((activity.is_proven, activity.waiting_since), *id))
        });
        let Some((_, id)) = waiting.min() else { return false };
        if let Some(connection) = self.remove(id) {
            connection.closing.cancel();
        }
        true
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Connection>> {
        let connection = self.connections.remove(&id)?;
        if let Some(count) = self.peers.get_mut(&connection.peer) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&connection.peer);
            }
        }
        Some(connection)
    }
}

impl Connection {
    fn new(peer: IpAddr, id: u64) -> Self {
        let activity = Activity {
            owner: if peer.is_loopback() { Owner::Connection(id) } else { Owner::Peer(peer) },
            requests: 0,
            is_proven: false,
            is_framed: false,
            waiting_since: Instant::now(),
            reading_since: None,
        };
        let activity = Mutex::new(activity);
        Self { peer, closing: CancellationToken::new(), unread: AtomicUsize::new(0), activity }
    }

    fn lock(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Activity {
    fn is_overdue(&self, header_timeout: Duration, now: Instant) -> bool {
        let is_over = |since: Instant, timeout| now.saturating_duration_since(since) >= timeout;
        let is_head_over = self.reading_since.is_some_and(|since| is_over(since, header_timeout));
        let waiting_timeout = if self.is_proven { WAITING_TIMEOUT } else { header_timeout };
        self.requests == 0
            && (is_head_over && !self.is_framed || is_over(self.waiting_since, waiting_timeout))
    }
}

impl Place {
    /// Notes that bytes have arrived.
    pub(super) fn note_read(&self) {
        let mut activity = self.connection.lock();
        if activity.requests == 0 && activity.reading_since.is_none() {
            activity.reading_since = Some(Instant::now());
        }
    }

    /// Notes that the client takes bytes of an answer.
    pub(super) fn note_written(&self) {
        let mut activity = self.connection.lock();
        if activity.is_proven {
            activity.waiting_since = Instant::now();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).remove(self.id);
    }
}

impl Watched {
    /// Notes a request whose head is complete, and says when its client has decided to ask, at the latest. `is_framed` says that the
    /// connection carries several requests at once.
    pub(super) fn begin(&self, is_framed: bool) -> (InProgress, Instant) {
        let mut activity = self.connection.lock();
        // Connections are opened to ask.
        let asked_at = if activity.is_proven { Instant::now() } else { activity.waiting_since };
        activity.requests += 1;
        activity.is_proven = true;
        activity.is_framed = is_framed;
        activity.reading_since = None;
        (InProgress(self.connection.clone()), asked_at)
    }

    /// Counts what the bodies of requests on this connection take.
    pub(super) fn memory(&self) -> Memory {
        Memory::new(self.clone())
    }

    /// Whether there is room for the answer that these bytes are of; short ones always have it.
    pub(super) fn has_room(&self, unread: &Unread) -> bool {
        let limit = self.clients.limits.unread;
        let owner = self.connection.lock().owner;
        let has_share = || self.clients.unread_of(owner) <= limit / 4;
        unread.bytes <= SHORT || self.clients.unread.load(Ordering::Relaxed) <= limit && has_share()
    }

    /// Counts bytes of an answer or a request, and closes a connection if there are too many of all.
    pub(super) fn hold(&self, bytes: usize) -> Unread {
        let (connection, all) = (self.connection.clone(), self.clients.unread.clone());
        connection.unread.fetch_add(bytes, Ordering::Relaxed);
        all.fetch_add(bytes, Ordering::Relaxed);
        self.clients.bound_unread();
        Unread { connection, all, bytes }
    }

    /// Waits until the connection has to be closed: its client takes too long, or others need the room.
    pub(super) async fn is_over(&self) {
        loop {
            let check = tokio::time::sleep(self.header_timeout / 4);
            if self.connection.closing.run_until_cancelled(check).await.is_none()
                || self.connection.lock().is_overdue(self.header_timeout, Instant::now())
            {
                return;
            }
        }
    }

    /// Notes that the connection is no longer served here. If it was upgraded, another task has it, and it is never waiting.
    pub(super) fn hand_over(&self) {
        self.connection.lock().requests += 1;
    }
}

impl CountsMemory for Watched {
    fn count(&self, bytes: usize) -> Counted {
        Box::new(self.hold(bytes))
    }

    fn belongs_to(&self, team: Uuid) {
        self.connection.lock().owner = Owner::Team(team);
    }

    fn visits(&self, team: Uuid) {
        self.connection.lock().owner = Owner::Visitor(team);
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.connection.unread.fetch_sub(self.bytes, Ordering::Relaxed);
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let mut activity = self.0.lock();
        activity.requests -= 1;
        activity.waiting_since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Duration = Duration::from_secs(30);

    fn clients(all: usize, of_peer: usize) -> Clients {
        Clients { limits: Limits { all, of_peer, unread: 1000 }, ..Clients::new(0, HEADER) }
    }

    fn peer(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn is_closing(place: &Place) -> bool {
        place.connection.closing.is_cancelled()
    }

    #[test]
    fn one_address_cannot_take_all_places() {
        let clients = clients(4, 2);
        let requests: Vec<_> = (0..2)
            .map(|_| {
                let place = clients.admit(peer(1)).unwrap();
                (clients.watch(&place).begin(false), place)
            })
            .collect();
        assert!(clients.admit(peer(1)).is_none());
        assert!(clients.admit(peer(2)).is_some());
        assert!(clients.admit("::ffff:192.0.2.1".parse().unwrap()).is_none(), "the same address");
        drop(requests);
        assert!(clients.admit(peer(1)).is_some());
    }

    #[test]
    fn a_proxy_on_this_machine_may_take_all_places() {
        let clients = clients(4, 1);
        let places: Vec<_> = (0..4).map(|_| clients.admit([127, 0, 0, 1].into()).unwrap()).collect();
        assert!(!places.iter().any(is_closing));
    }

    #[test]
    fn what_waits_makes_room_and_what_never_asked_does_so_first() {
        let clients = clients(3, 3);
        let proven = clients.admit(peer(1)).unwrap();
        drop(clients.watch(&proven).begin(false));
        let fresh = clients.admit(peer(1)).unwrap();
        let busy = clients.admit(peer(1)).unwrap();
        let request = clients.watch(&busy).begin(false);
        let next = clients.admit(peer(2)).unwrap();
        assert!(is_closing(&fresh) && !is_closing(&proven) && !is_closing(&busy));
        let request_of_next = clients.watch(&next).begin(false);
        let last = clients.admit(peer(2)).unwrap();
        assert!(is_closing(&proven));
        let request_of_last = clients.watch(&last).begin(false);
        assert!(clients.admit(peer(3)).is_none(), "all are in use");
        drop((request, request_of_next, request_of_last));
        clients.make_room();
        assert!([&busy, &next, &last].into_iter().all(is_closing));
        assert!(clients.lock().connections.is_empty() && clients.lock().peers.is_empty());
    }

    #[test]
    fn those_that_hold_the_most_unread_answers_are_closed() {
        // Every place is of another address, and so of another owner.
        let clients = clients(9, 9);
        let places: Vec<_> = (1..4).map(|last| clients.admit(peer(last)).unwrap()).collect();
        let watched: Vec<_> = places.iter().map(|place| clients.watch(place)).collect();
        let request = watched[1].begin(true);
        let held = [watched[0].hold(300), watched[1].hold(250), watched[1].hold(250), watched[2].hold(200)];
        assert!(!places.iter().any(is_closing));
        let more = watched[0].hold(1);
        assert_eq!(
            places.iter().map(is_closing).collect::<Vec<_>>(),
            [false, true, false],
            "though it has a request"
        );
        // It is closed, and its answers are not counted twice.
        let last = watched[2].hold(499);
        assert!(!is_closing(&places[0]) && !is_closing(&places[2]));
        drop((held, more, last, request));
        assert_eq!(clients.unread.load(Ordering::Relaxed), 0);
        let all = watched[0].hold(1000);
        assert!(!is_closing(&places[0]) && watched[0].has_room(&all));
    }

    #[test]
    fn many_connections_of_one_team_close_none_of_another() {
        let clients = clients(99, 99);
        let connect = |team: u128| {
            let place = clients.admit(peer(1)).unwrap();
            let watched = clients.watch(&place);
            watched.belongs_to(Uuid::from_u128(team));
            (place, watched)
        };
        let victim = connect(1);
        let of_victim = victim.1.hold(300);
        let greedy: Vec<_> = (0..20).map(|_| connect(2)).collect();
        let held: Vec<_> = greedy.iter().map(|(_, watched)| watched.hold(50)).collect();
        assert!(!is_closing(&victim.0));
        let closed = greedy.iter().filter(|(place, _)| is_closing(place)).count();
        assert_eq!(closed, (300 + 20 * 50 - 1000usize).div_ceil(50));
        drop((of_victim, held));
        assert_eq!(clients.unread.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn long_answers_need_room_and_short_ones_do_not() {
        let limits = Limits { unread: 4 * (SHORT + 1), ..clients(9, 9).limits };
        let clients = Clients { limits, ..clients(9, 9) };
        let (one, other) = (clients.admit(peer(1)).unwrap(), clients.admit(peer(2)).unwrap());
        let (one, other) = (clients.watch(&one), clients.watch(&other));
        let (long, short) = (one.hold(SHORT + 1), one.hold(SHORT));
        assert!(!one.has_room(&long) && one.has_room(&short), "more than a quarter");
        let of_other = other.hold(SHORT + 1);
        assert!(other.has_room(&of_other));
        drop(short);
        assert!(one.has_room(&long));
        let all = other.hold(limits.unread);
        assert!(!one.has_room(&long) && !other.has_room(&of_other));
        drop(all);
    }

    #[test]
    fn the_first_request_was_decided_when_the_connection_was_opened() {
        let clients = clients(9, 9);
        let place = clients.admit(peer(1)).unwrap();
        let (watched, admitted) = (clients.watch(&place), Instant::now());
        assert!(watched.begin(false).1 <= admitted);
        assert!(watched.begin(false).1 > admitted);
    }

    #[test]
    fn a_head_has_its_time_and_a_request_all_the_time_it_needs() {
        let clients = clients(9, 9);
        let place = clients.admit(peer(1)).unwrap();
        let watched = clients.watch(&place);
        let overdue = |after: u64| {
            let now = Instant::now() + Duration::from_secs(after);
            place.connection.lock().is_overdue(HEADER, now)
        };
        assert!(!overdue(29) && overdue(30), "the first request");
        let request = watched.begin(false);
        place.note_read();
        assert!(!overdue(1 << 20), "a request in progress");
        drop(request);
        assert!(!overdue(630) && overdue(640), "another request");
        place.note_read();
        assert!(overdue(30), "half of a head");
        drop(watched.begin(true));
        place.note_read();
        assert!(!overdue(630), "frames that are no request");
        watched.hand_over();
        assert!(!overdue(1 << 20), "another protocol");
    }
}
