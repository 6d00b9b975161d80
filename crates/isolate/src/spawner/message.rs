//! Messages between server, spawner, builder and the future PID 1: one JSON text and its descriptors per packet of a
//! sequenced-packet unix socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Most descriptors one packet carries.
const MAX_FDS: usize = 32;
/// Longest packet. The boot message travels in a memfd of its own, so nothing here grows with user input.
const MAX_PACKET: usize = 64 * 1024;

/// Spawner to server, once, before anything is asked of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Greeting {
    /// The spawner has its own view of the file system and takes requests.
    Ready,
    /// The spawner cannot work and is ending.
    Failed(Failure),
}

/// Server to spawner. Descriptors: the user namespace to be born in, when it is not the host's, and the builder's end of
/// the reply socket.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BuildRequest {
    /// First host id of the sandbox's id range.
    pub id_base: u32,
    /// What is to be made.
    pub kind: Kind,
}

/// The two kinds of jails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// A sandbox.
    Sandbox,
    /// A template's warm process: it has the host's process numbers, so that what it forks can enter any sandbox, and its
    /// user namespace is the parent of its sandboxes'.
    Warm {
        /// First of the host ids that its sandboxes' ranges are taken from.
        sandboxes_from: u32,
        /// How many there are.
        sandboxes_count: u32,
    },
}

/// Server to builder, and builder to PID 1. Descriptors: the log, then what the program finds from descriptor 3 on; on
/// the way to PID 1 the mounted volumes and the mounted root follow.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// Host name inside.
    pub hostname: String,
    /// Layer directories, topmost first.
    pub layers: Vec<PathBuf>,
    /// Directory that holds `upper` and `work`.
    pub upper: PathBuf,
    /// Directories that are mounted inside, in this order.
    pub volumes: Vec<Volume>,
    /// Host directory that is mounted at [`sandcove_wire::boot::LIBEXEC`].
    pub libexec: PathBuf,
    /// The sandbox's own address and its gateway; none without a network.
    pub address: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Size limit of the memory-backed file systems, MiB.
    pub tmpfs_mib: u64,
    /// What it is.
    pub kind: Kind,
    /// Program and arguments.
    pub command: Vec<String>,
}

/// A directory of the host that a sandbox sees.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Volume {
    /// Where it is on the host.
    pub source: PathBuf,
    /// Where it is inside.
    pub target: String,
}

/// Builder to server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// PID 1 exists, waits, and has its id maps.
    Cloned {
        /// Its host pid.
        pid: u32,
    },
    /// PID 1 runs the agent.
    Launched,
    /// It could not be built; nothing of it is left but what the server itself made.
    Failed(Failure),
}

/// A failed step.
#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
#[error("step `{step}`: {reason}")]
pub(crate) struct Failure {
    /// Which.
    pub step: String,
    /// Why.
    pub reason: String,
}

impl Failure {
    /// For `map_err`: names the step an I/O error happened in.
    pub(crate) fn at<E: std::fmt::Display>(step: &str) -> impl FnOnce(E) -> Self + '_ {
        move |error| Self { step: step.to_owned(), reason: error.to_string() }
    }
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

/// Receives one message and its descriptors; `None` when the other side is gone.
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
