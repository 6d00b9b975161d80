//! Name resolution for egress proxies. They ask the name servers themselves: what a name means inside a sandbox does not count.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::dns_message::{Answer, Query};
use crate::rules::NameServers;
use crate::sockets::Sockets;

/// Timeout for an answer of one server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of queries for one name.
const MAX_QUERIES: usize = 4;
const PORT: u16 = 53;
/// Maximum length of an answer over UDP to a query without extensions.
const MAX_DATAGRAM: usize = 512;

/// Resolves `name` to IPv4 addresses. The servers are asked in turn until one answers.
pub(crate) async fn resolve(
    name: &str,
    servers: &NameServers,
    sockets: &Sockets,
) -> io::Result<Vec<Ipv4Addr>> {
    let (list, is_trusted) = match servers {
        NameServers::Trusted(list) => (list, true),
        NameServers::Guarded(list) => (list, false),
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no name server is configured");
    let attempts = MAX_QUERIES.min(list.len() * 2);
    for server in list.iter().cycle().take(attempts) {
        match tokio::time::timeout(ANSWER_TIMEOUT, ask(*server, name, is_trusted, sockets)).await {
            Ok(Ok(addresses)) => return Ok(addresses),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

async fn ask(server: Ipv4Addr, name: &str, is_trusted: bool, sockets: &Sockets) -> io::Result<Vec<Ipv4Addr>> {
    let query = Query::new(rand::random(), name)?;
    let socket = sockets.udp(is_trusted).await?;
    socket.connect((server, PORT)).await?;
    socket.send(query.bytes()).await?;
    let mut buffer = [0; MAX_DATAGRAM];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // A message that does not answer this query may be forged: wait for the real answer.
        match query.read_answer(&buffer[..length]) {
            Some(Answer::Addresses(addresses)) => return Ok(addresses),
            Some(Answer::Truncated) => return ask_over_tcp(server, &query, is_trusted, sockets).await,
            Some(Answer::Failed) => {
                return Err(io::Error::other("the name server failed to resolve the name"));
            }
            None => {}
        }
    }
}

async fn ask_over_tcp(
    server: Ipv4Addr,
    query: &Query,
    is_trusted: bool,
    sockets: &Sockets,
) -> io::Result<Vec<Ipv4Addr>> {
    let mut stream = sockets.tcp(is_trusted).await?.connect((server, PORT).into()).await?;
    let length = query.bytes().len() as u16;
    stream.write_all(&[&length.to_be_bytes()[..], query.bytes()].concat()).await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    match query.read_answer(&answer) {
        Some(Answer::Addresses(addresses)) => Ok(addresses),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
