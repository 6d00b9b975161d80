//! TCP connections to services inside sandboxes, at any address they are bound to. A thread of its own enters the sandbox's
//! network namespace to create the socket. The socket then belongs to that namespace and connects to the sandbox's loopback
//! without crossing an interface or the firewall of the host.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream as StdTcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;

use crate::sys;

/// Request for a socket in a network namespace.
struct Job {
    namespace: OwnedFd,
    v6: bool,
    answer: oneshot::Sender<io::Result<OwnedFd>>,
}

/// Handle of the thread that creates sockets inside sandboxes.
pub(crate) struct Dialer {
    jobs: mpsc::Sender<Job>,
}

impl Dialer {
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::Builder::new().name("dialer".into()).spawn(move || {
            for job in queue {
                let entered =
                    move_into_link_name_space(job.namespace.as_fd(), Some(LinkNameSpaceType::Network));
                let socket = entered.map_err(io::Error::from).and_then(|()| sys::tcp_socket(job.v6));
                let _ = job.answer.send(socket);
            }
        })?;
        Ok(Self { jobs })
    }

    /// Connects to `port` on 127.0.0.1, then on ::1, inside `namespace`.
    pub(crate) async fn connect(&self, namespace: &OwnedFd, port: u16) -> io::Result<TcpStream> {
        match self.connect_to(namespace, (Ipv4Addr::LOCALHOST, port).into()).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let second = self.connect_to(namespace, (Ipv6Addr::LOCALHOST, port).into()).await;
                // Without IPv6 the second error differs; the caller needs to know that nothing listens.
                second.map_err(|_| error)
            }
            other => other,
        }
    }

    async fn connect_to(&self, namespace: &OwnedFd, address: SocketAddr) -> io::Result<TcpStream> {
        let (answer, socket) = oneshot::channel();
        let job = Job { namespace: namespace.try_clone()?, v6: address.is_ipv6(), answer };
        self.jobs.send(job).map_err(|_| io::ErrorKind::BrokenPipe)?;
        let socket = socket.await.map_err(|_| io::ErrorKind::BrokenPipe)??;
        let stream = TcpSocket::from_std_stream(StdTcpStream::from(socket)).connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
