//! Sockets of the egress process. The host process makes them: it marks them for the firewall, which this process has no right to do, and
//! this process may make none.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandcove_channel::{Outgoing, Sender};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::sync::oneshot;

use crate::message::{FromEgress, SocketKind};

type Waiting = VecDeque<oneshot::Sender<io::Result<OwnedFd>>>;

/// The way to the host process. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Sockets {
    outgoing: Sender,
    waiting: Arc<Mutex<Waiting>>,
}

impl Sockets {
    /// Asks with messages that `outgoing` sends.
    pub(crate) fn new(outgoing: Sender) -> Self {
        Self { outgoing, waiting: Arc::default() }
    }

    /// Makes a socket for TCP: one for the operator's name servers, or one for what sandboxes may reach.
    pub(crate) async fn tcp(&self, to_resolver: bool) -> io::Result<TcpSocket> {
        let kind = if to_resolver { SocketKind::ResolverStream } else { SocketKind::Stream };
        Ok(TcpSocket::from_std_stream(std::net::TcpStream::from(self.ask(kind).await?)))
    }

    /// Makes a socket for UDP, likewise.
    pub(crate) async fn udp(&self, to_resolver: bool) -> io::Result<UdpSocket> {
        let kind = if to_resolver { SocketKind::ResolverDatagram } else { SocketKind::Datagram };
        UdpSocket::from_std(std::net::UdpSocket::from(self.ask(kind).await?))
    }

    /// Takes the host process's answer to the oldest question.
    ///
    /// # Errors
    /// An error if there was no question.
    pub(crate) fn answer(&self, socket: io::Result<OwnedFd>) -> io::Result<()> {
        let asked = self.waiting().pop_front().ok_or(io::ErrorKind::InvalidData)?;
        // Nobody waits for a connection that was closed meanwhile.
        let _ = asked.send(socket);
        Ok(())
    }

    async fn ask(&self, kind: SocketKind) -> io::Result<OwnedFd> {
        let (answer, socket) = oneshot::channel();
        {
            // Questions are sent in the order in which their answers are expected.
            let mut waiting = self.waiting();
            self.outgoing.send(Outgoing::new(&FromEgress::Socket(kind), None, Vec::new())?)?;
            waiting.push_back(answer);
        }
        socket.await.map_err(|_| io::ErrorKind::BrokenPipe)?
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
