//! Sockets that the server opens itself: how many there may be, and whose they are.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl};
use rustix::process::{Resource, getrlimit};

use crate::sys;

/// Mark of sockets that the server opens on behalf of a user or a sandbox. The firewall refuses them the addresses that
/// sandboxes must not reach.
pub(super) const GUARDED_MARK: u32 = 0x53;
/// Mark of sockets to the operator's name servers; the number of the instance follows in the lower byte.
pub(super) const RESOLVER_MARK: u32 = 0x5300;
/// Time of silence after which the kernel asks whether a peer is still there, and the time between two questions. It asks
/// nine times.
const PROBE_AFTER: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(15);
/// Size of what the kernel holds of a stream that is not read, bytes. The kernel doubles it.
const MAX_RECEIVED: u32 = 512 << 10;
/// Size of what the kernel takes of a stream before it is sent, bytes.
const MAX_UNSENT: u32 = 128 << 10;

/// Returns the number of descriptors that this process may have open.
pub fn descriptor_limit() -> usize {
    const UNLIMITED: usize = 1 << 20;
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(UNLIMITED)
}

/// Has the kernel close a connection whose peer has disappeared without a word.
pub fn notice_lost_peer(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    set_socket_keepalive(socket, true)?;
    set_tcp_keepidle(socket, PROBE_AFTER)?;
    set_tcp_keepintvl(socket, PROBE_EVERY).map_err(Into::into)
}

/// Bounds what the kernel takes of a stream before it is sent: without this, up to `net.ipv4.tcp_wmem`, 4 MB, for each client that does not
/// read. What is on its way to a client is not bounded.
pub fn bound_unsent(socket: impl AsFd) -> io::Result<()> {
    let bytes = MAX_UNSENT.to_ne_bytes();
    sys::set_socket_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes)
}

/// Bounds what the kernel holds of a stream that is not read: without this, up to `net.ipv4.tcp_rmem`, 6 MB.
pub fn bound_received(socket: impl AsFd) -> io::Result<()> {
    let bytes = MAX_RECEIVED.to_ne_bytes();
    sys::set_socket_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes)
}

/// Has the kernel report a TCP socket as readable once `bytes` have arrived, and not before; 1 is the kernel's default. The end of the
/// stream and errors are reported at once, and a read returns what is there.
pub fn wake_at(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    sys::set_socket_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, &bytes.to_ne_bytes())
}

/// Has the firewall treat a socket of the server like a sandbox.
pub(crate) fn guard(socket: impl AsFd) -> io::Result<()> {
    sys::mark(socket.as_fd(), GUARDED_MARK)
}
