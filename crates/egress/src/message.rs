//! What the host process and the egress process tell each other.

use std::net::Ipv4Addr;

use sandcove_wire::secret::Secret;
use serde::{Deserialize, Serialize};

use crate::authority::Authority;
use crate::log::Connection;
use crate::rules::Rules;

/// A message to the egress process. It answers each [`Setup`](Self::Setup), [`Open`](Self::Open), [`Set`](Self::Set) and [`Close`](Self::Close) with
/// [`FromEgress::Done`], in their order.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToEgress {
    /// Keys and authority for rules; the first message.
    Setup {
        /// Keys that values of secrets are sealed with.
        keys: Secret,
        /// The authority that sandboxes with rules trust.
        authority: Authority,
        /// Keys that tokens of sandboxes are signed with.
        signing: Secret,
    },
    /// A sandbox gets a proxy, or another one. Its listener comes along.
    Open {
        /// Slot of the sandbox.
        slot: u32,
        /// Address of the sandbox; other peers are refused.
        guest: Ipv4Addr,
        /// Rules of the proxy.
        rules: Rules,
    },
    /// The rules of a sandbox's proxy change; connections to hosts that are no longer allowed are closed.
    Set {
        /// Slot of the sandbox.
        slot: u32,
        /// The new rules.
        rules: Rules,
    },
    /// A sandbox's proxy is closed with all its connections.
    Close {
        /// Slot of the sandbox.
        slot: u32,
    },
    /// The socket that was asked for comes along. Sockets come in the order in which they were asked for.
    Socket,
    /// The socket that was asked for cannot be made; the number of the kernel's error.
    NoSocket(i32),
    /// A question with a number of its own. It is answered with [`FromEgress::Answer`], in any order.
    Ask(u64, Question),
}

/// A question to the egress process.
#[derive(Debug, Serialize, Deserialize)]
pub enum Question {
    /// The addresses of a name, as name servers of the operator have it.
    Addresses {
        /// The name.
        name: String,
        /// The name servers.
        servers: Vec<Ipv4Addr>,
    },
    /// The egress log of the sandbox in a slot.
    Log {
        /// Slot of the sandbox.
        slot: u32,
    },
}

/// An answer of the egress process.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Addresses of the name; none if it cannot be resolved.
    Addresses(Vec<Ipv4Addr>),
    /// Connections of the sandbox, the oldest first.
    Log(Vec<Connection>),
}

/// A message of the egress process.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromEgress {
    /// The oldest change that was not answered yet is in effect.
    Done,
    /// The process needs a socket.
    Socket(SocketKind),
    /// The answer to the question with this number.
    Answer(u64, Reply),
}

/// Kinds of sockets that the egress process may have. The firewall decides where each leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketKind {
    /// TCP to what sandboxes may reach.
    Stream,
    /// UDP to what sandboxes may reach.
    Datagram,
    /// TCP to the operator's name servers and nothing else.
    ResolverStream,
    /// UDP to the operator's name servers and nothing else.
    ResolverDatagram,
}
