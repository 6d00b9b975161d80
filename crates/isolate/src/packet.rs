//! Packets between the processes of a start: one JSON message and its descriptors per packet of a sequenced-packet unix
//! socket, which keeps message boundaries.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum number of descriptors in one packet.
const MAX_FDS: usize = 32;
/// Maximum size of a packet, bytes. The boot message travels over a socket of its own, so no packet grows with user input.
const MAX_PACKET: usize = 64 * 1024;

/// Takes the socket that was passed on as standard input, the one descriptor that can be passed on without unsafe code.
pub fn passed_socket() -> io::Result<OwnedFd> {
    let stdin = rustix::stdio::stdin();
    rustix::net::sockopt::socket_type(stdin)?;
    let socket = rustix::io::fcntl_dupfd_cloexec(stdin, 10)?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(null)?;
    Ok(socket)
}

/// Creates a connected pair of packet sockets, closed on exec.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(Into::into)
}

/// Sends one message with `fds`.
pub(crate) fn send<T: Serialize>(socket: impl AsFd, message: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MAX_PACKET || fds.len() > MAX_FDS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Sends the bytes of one packet.
pub(crate) fn send_bytes(socket: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the bytes of one packet; `None` when the other side has closed the socket.
pub(crate) fn receive_bytes(socket: impl AsFd) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; MAX_PACKET];
    let (length, _) = rustix::net::recv(socket, bytes.as_mut_slice(), RecvFlags::empty())?;
    bytes.truncate(length);
    Ok((length > 0).then_some(bytes))
}

/// Receives one message and its descriptors; `None` when the other side has closed the socket.
pub(crate) fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&bytes[..received.bytes])?, fds)))
}
