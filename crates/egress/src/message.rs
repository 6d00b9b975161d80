//! What the host process and the egress process tell each other.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// A message to the egress process. It answers each [`Open`](Self::Open), [`Set`](Self::Set) and [`Close`](Self::Close) with
/// [`FromEgress::Done`], in their order.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToEgress {
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
}

/// A message of the egress process.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromEgress {
    /// The oldest change that was not answered yet is in effect.
    Done,
    /// The process needs a socket.
    Socket(SocketKind),
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

/// Rules of an egress proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Allowed host names, in lowercase: `name`, `*.name` for its subdomains, `*` for all.
    pub names: Vec<String>,
    /// Name servers that resolve them.
    pub servers: NameServers,
}

/// Name servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameServers {
    /// Name servers of the operator, at any address.
    Trusted(Vec<Ipv4Addr>),
    /// Name servers of a user, only at addresses that sandboxes may reach.
    Guarded(Vec<Ipv4Addr>),
}

impl Rules {
    /// Whether connections to `host`, a name in lowercase, are allowed.
    pub(crate) fn allow(&self, host: &str) -> bool {
        self.names.iter().any(|pattern| match pattern.strip_prefix('*') {
            Some("") => true,
            Some(below) => host.len() > below.len() && host.ends_with(below),
            None => host == pattern,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_what_they_say() {
        let allow = |names: &[&str], host: &str| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            Rules { names, servers: NameServers::Trusted(vec![]) }.allow(host)
        };
        assert!(allow(&["example.com"], "example.com"));
        assert!(!allow(&["example.com"], "www.example.com"));
        assert!(!allow(&["example.com"], "badexample.com"));
        assert!(allow(&["*.example.com"], "www.example.com") && allow(&["*.example.com"], "a.b.example.com"));
        assert!(!allow(&["*.example.com"], "example.com") && !allow(&["*.example.com"], "badexample.com"));
        assert!(allow(&["*"], "anything.there.is"));
        assert!(!allow(&[], "example.com"));
    }
}
