//! Name resolution for egress proxies. The server asks the name servers itself: what a name means inside a sandbox does not
//! count.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};

use super::dns_message::{Answer, Query};
use super::sockets::guard;

/// Timeout for an answer of one server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of queries for one name.
const MAX_QUERIES: usize = 4;
const PORT: u16 = 53;
/// Maximum length of an answer over UDP to a query without extensions.
const MAX_DATAGRAM: usize = 512;

/// Name servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Servers {
    /// Name servers of the operator, at any address.
    Trusted(Vec<Ipv4Addr>),
    /// Name servers of a user, only at addresses that sandboxes may reach.
    Guarded(Vec<Ipv4Addr>),
}

impl Servers {
    fn list(&self) -> &[Ipv4Addr] {
        let (Self::Trusted(list) | Self::Guarded(list)) = self;
        list
    }

    /// Resolves `name` to IPv4 addresses. The servers are asked in turn until one answers.
    pub(super) async fn resolve(&self, name: &str) -> io::Result<Vec<Ipv4Addr>> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no name server is configured");
        let attempts = MAX_QUERIES.min(self.list().len() * 2);
        for server in self.list().iter().cycle().take(attempts) {
            match tokio::time::timeout(ANSWER_TIMEOUT, self.ask(*server, name)).await {
                Ok(Ok(addresses)) => return Ok(addresses),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }

    async fn ask(&self, server: Ipv4Addr, name: &str) -> io::Result<Vec<Ipv4Addr>> {
        let query = Query::new(rand::random(), name)?;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        self.guard(&socket)?;
        socket.connect((server, PORT)).await?;
        socket.send(query.bytes()).await?;
        let mut buffer = [0; MAX_DATAGRAM];
        loop {
            let length = socket.recv(&mut buffer).await?;
            // A message that does not answer this query may be forged: wait for the real answer.
            match query.read_answer(&buffer[..length]) {
                Some(Answer::Addresses(addresses)) => return Ok(addresses),
                Some(Answer::Truncated) => return self.ask_over_tcp(server, &query).await,
                Some(Answer::Failed) => {
                    return Err(io::Error::other("the name server failed to resolve the name"));
                }
                None => {}
            }
        }
    }

    async fn ask_over_tcp(&self, server: Ipv4Addr, query: &Query) -> io::Result<Vec<Ipv4Addr>> {
        let socket = TcpSocket::new_v4()?;
        self.guard(&socket)?;
        let mut stream = socket.connect((server, PORT).into()).await?;
        let length = query.bytes().len() as u16;
        stream.write_all(&[&length.to_be_bytes()[..], query.bytes()].concat()).await?;
        let mut answer = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut answer).await?;
        match query.read_answer(&answer) {
            Some(Answer::Addresses(addresses)) => Ok(addresses),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn guard(&self, socket: &impl std::os::fd::AsFd) -> io::Result<()> {
        match self {
            Self::Trusted(_) => Ok(()),
            Self::Guarded(_) => guard(socket),
        }
    }
}
