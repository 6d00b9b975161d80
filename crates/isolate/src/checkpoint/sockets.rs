//! Options of sockets that CRIU does not store: read before a dump, and set again on the restored sockets before their processes run.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::descriptors;
use super::numbers::processes;
use crate::{Error, Result, sys};

/// File with the options in the directory of the images.
const FILE: &str = "sockets.json";
/// Protocol of TCP, and of UDP.
const TCP: i32 = libc::IPPROTO_TCP;
const UDP: i32 = libc::IPPROTO_UDP;
/// Options of all sockets, by the numbers of the kernel: time stamps (29, 35, 37, 63 to 65), `SO_RXQ_OVFL`, `SO_WIFI_STATUS`, `SO_PEEK_OFF`,
/// `SO_SELECT_ERR_QUEUE`, `SO_BUSY_POLL`, `SO_MAX_PACING_RATE`, `SO_ZEROCOPY`, `SO_TXTIME`, `SO_PREFER_BUSY_POLL`, `SO_TXREHASH`, `SO_RCVMARK`,
/// `SO_PASSPIDFD`.
const ANY: [i32; 18] = [29, 35, 37, 63, 64, 65, 40, 41, 42, 45, 46, 47, 60, 61, 69, 74, 75, 76];
/// Options of IPv4: what is received with a packet (6, 7, 12, 13, 18, 20, 25), discovery of the MTU, errors (11, 26), `IP_TRANSPARENT`,
/// `IP_MINTTL`, `IP_CHECKSUM`, `IP_BIND_ADDRESS_NO_PORT`, `IP_UNICAST_IF`, `IP_LOCAL_PORT_RANGE`.
const IP: [i32; 15] = [6, 7, 12, 13, 18, 20, 25, 10, 11, 26, 19, 21, 23, 24, 50];
const IP_LOCAL_PORT_RANGE: i32 = 51;
/// Options of IPv6: limits of hops (16, 73), discovery of the MTU, errors (25, 31), `IPV6_FLOWINFO_SEND`, what is
/// received with a packet (51, 53, 56, 58, 60, 66, 74, 77), `IPV6_DONTFRAG`, `IPV6_TCLASS`, `IPV6_AUTOFLOWLABEL`, `IPV6_ADDR_PREFERENCES`,
/// `IPV6_TRANSPARENT`, `IPV6_UNICAST_IF`.
const IPV6: [i32; 20] = [16, 73, 23, 25, 31, 33, 49, 51, 53, 56, 58, 60, 66, 74, 77, 62, 67, 70, 72, 76];
/// Options of multicast, of IPv4 and of IPv6, which connections have from the kernel alone.
const MULTICAST: [i32; 4] = [32, 33, 34, 49];
const MULTICAST6: [i32; 4] = [17, 18, 19, 29];
/// Options of TCP: `TCP_SYNCNT`, `TCP_LINGER2`, `TCP_DEFER_ACCEPT`, `TCP_CONGESTION`, `TCP_THIN_LINEAR_TIMEOUTS`, `TCP_USER_TIMEOUT`,
/// `TCP_FASTOPEN`, `TCP_NOTSENT_LOWAT`, `TCP_SAVE_SYN`, `TCP_FASTOPEN_CONNECT`, `TCP_FASTOPEN_NO_COOKIE`, `TCP_INQ`.
const OF_TCP: [i32; 12] = [7, 8, 9, 13, 16, 18, 23, 25, 27, 30, 34, 36];
/// Options of TCP that a connection changes by itself: `TCP_MAXSEG`, `TCP_WINDOW_CLAMP`.
const BEFORE_CONNECTION: [i32; 2] = [2, 10];
/// Size of segments before a connection, bytes, and states of sockets without one.
const DEFAULT_SEGMENT: u32 = 536;
const CLOSED: u8 = 7;
const LISTENING: u8 = 10;
/// Options of UDP: `UDP_CORK`, `UDP_ENCAP`, checksums, `UDP_SEGMENT`, `UDP_GRO`.
const OF_UDP: [i32; 6] = [1, 100, 101, 102, 103, 104];
/// Options of netlink: `NETLINK_PKTINFO`, `NETLINK_BROADCAST_ERROR`, `NETLINK_NO_ENOBUFS`, `NETLINK_LISTEN_ALL_NSID`, `NETLINK_CAP_ACK`,
/// `NETLINK_EXT_ACK`, `NETLINK_GET_STRICT_CHK`.
const OF_NETLINK: [i32; 7] = [3, 4, 5, 8, 10, 11, 12];

/// A socket, by a descriptor of it.
#[derive(Debug, Serialize, Deserialize)]
struct Socket {
    /// Number of a process inside that has it.
    process: u32,
    descriptor: i32,
    options: Vec<SocketOption>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SocketOption {
    level: i32,
    name: i32,
    value: Vec<u8>,
}

/// Writes the options of all sockets of the processes `pids` into the directory of the images.
pub(super) fn store(pids: &[u32], directory: &Path, budget: &Budget) -> Result<()> {
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    for (inside, pid) in processes(pids) {
        let failed = |source| Error::Kernel { action: format!("read sockets of process {pid}"), source };
        for (descriptor, target) in descriptors::of(pid) {
            if descriptors::socket(&target).is_some_and(|number| seen.insert(number)) {
                budget.check()?;
                let socket = descriptors::copy(pid, descriptor).map_err(failed)?;
                let options = options(socket.as_fd()).map_err(failed)?;
                found.push(Socket { process: inside, descriptor, options });
            }
        }
    }
    let path = directory.join(FILE);
    let written =
        serde_json::to_vec(&found).map_err(io::Error::from).and_then(|text| std::fs::write(&path, text));
    written.map_err(|source| Error::Path { action: "write", path, source })
}

/// Gives the sockets of the restored processes `pids` the options that are in the directory `generation`. One of an earlier version has none.
pub(super) fn restore(pids: &[u32], generation: &Path) -> io::Result<()> {
    let stored: Vec<Socket> = super::stored(generation, FILE)?;
    let processes = processes(pids);
    for Socket { process, descriptor, options } in stored {
        if let Some(pid) = processes.get(&process) {
            let socket = descriptors::copy(*pid, descriptor)?;
            for option in options {
                set(socket.as_fd(), &option).map_err(|error| {
                    let SocketOption { level, name, .. } = option;
                    io::Error::new(error.kind(), format!("option {level}:{name} of a socket: {error}"))
                })?;
            }
        }
    }
    Ok(())
}

/// Sets an option that has another value.
fn set(socket: BorrowedFd<'_>, option: &SocketOption) -> io::Result<()> {
    match sys::socket_option(socket, option.level, option.name) {
        Ok(value) if value == option.value => return Ok(()),
        _ => {}
    }
    match sys::set_socket_option(socket, option.level, option.name, &option.value) {
        // A socket of this kind has it from the kernel alone.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP)) => Ok(()),
        set => set,
    }
}

/// The options that a socket has, of those above.
fn options(socket: BorrowedFd<'_>) -> io::Result<Vec<SocketOption>> {
    let number = |name| {
        let value = sys::socket_option(socket, libc::SOL_SOCKET, name)?;
        value.try_into().map(i32::from_ne_bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    };
    let (domain, kind) = (number(libc::SO_DOMAIN)?, number(libc::SO_TYPE)?);
    let protocol = number(libc::SO_PROTOCOL)?;
    let mut names: Vec<(i32, i32)> = ANY.map(|name| (libc::SOL_SOCKET, name)).into();
    // A socket of IPv6 has those of IPv4 too: it may be connected to an address of IPv4.
    if [libc::AF_INET, libc::AF_INET6].contains(&domain) {
        names.extend(IP.map(|name| (libc::IPPROTO_IP, name)));
        names.push((libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE));
        names.extend((protocol == TCP).then_some(OF_TCP).into_iter().flatten().map(|name| (TCP, name)));
        names.extend((protocol == UDP).then_some(OF_UDP).into_iter().flatten().map(|name| (UDP, name)));
    }
    if domain == libc::AF_INET6 {
        names.extend(IPV6.map(|name| (libc::IPPROTO_IPV6, name)));
    }
    if kind == libc::SOCK_DGRAM {
        names.extend(MULTICAST.map(|name| (libc::IPPROTO_IP, name)));
        names.extend(MULTICAST6.map(|name| (libc::IPPROTO_IPV6, name)));
    }
    if protocol == TCP && was_never_connected(socket) {
        names.extend(BEFORE_CONNECTION.map(|name| (TCP, name)));
    }
    if domain == libc::AF_NETLINK {
        names.extend(OF_NETLINK.map(|name| (libc::SOL_NETLINK, name)));
    }
    // A kernel or a kind of socket that does not know an option has nothing to lose.
    let known = names.into_iter().filter_map(|(level, name)| {
        let value = sys::socket_option(socket, level, name).ok()?;
        Some(SocketOption { level, name, value })
    });
    Ok(known.collect())
}

/// Whether a socket of TCP has never been connected, by its `TCP_INFO`: the state comes first, and the size of segments after 16 bytes.
fn was_never_connected(socket: BorrowedFd<'_>) -> bool {
    let info = sys::socket_option(socket, TCP, libc::TCP_INFO).unwrap_or_default();
    match info.first() {
        Some(&LISTENING) => true,
        Some(&CLOSED) => info.get(16..20) == Some(&DEFAULT_SEGMENT.to_ne_bytes()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsRawFd;

    use super::*;

    fn value(socket: impl AsFd, level: i32, name: i32) -> Vec<u8> {
        sys::socket_option(socket.as_fd(), level, name).unwrap()
    }

    #[test]
    fn options_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let own = [std::process::id()];
        let (listener, datagrams) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("[::1]:0").unwrap());
        let five = 5_i32.to_ne_bytes();
        let changes = [
            (listener.as_fd(), TCP, libc::TCP_USER_TIMEOUT),
            (listener.as_fd(), TCP, libc::TCP_FASTOPEN),
            (datagrams.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS),
        ];
        for (socket, level, name) in changes {
            sys::set_socket_option(socket, level, name, &five).unwrap();
        }
        // Other tests close theirs meanwhile.
        while store(&own, directory.path(), &Budget::start()).is_err() {}
        for (socket, level, name) in changes {
            sys::set_socket_option(socket, level, name, &7_i32.to_ne_bytes()).unwrap();
        }
        // Only these: other tests of this process have sockets too.
        let all: Vec<Socket> =
            serde_json::from_slice(&std::fs::read(directory.path().join(FILE)).unwrap()).unwrap();
        let kept: Vec<&Socket> = all
            .iter()
            .filter(|socket| [listener.as_raw_fd(), datagrams.as_raw_fd()].contains(&socket.descriptor))
            .collect();
        std::fs::write(directory.path().join(FILE), serde_json::to_vec(&kept).unwrap()).unwrap();
        restore(&own, directory.path()).unwrap();
        for (socket, level, name) in changes {
            assert_eq!(value(socket, level, name), five, "{level}:{name}");
        }
    }
}
