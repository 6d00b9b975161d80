//! Sockets of sandboxes that the server creates. A thread of its own enters the sandbox's network namespace to create one, which
//! then belongs to that namespace: a TCP socket connects to services at any address of the sandbox's loopback without crossing an
//! interface or the firewall of the host, and a unix socket is stored on disk with the sandbox.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream as StdTcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;

use crate::sys;

/// Work in a network namespace; it gets the outcome of entering the namespace.
struct Job {
    namespace: OwnedFd,
    work: Box<dyn FnOnce(io::Result<()>) + Send>,
}

fn enter(namespace: &OwnedFd) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Handle of the thread that creates sockets inside sandboxes, and starts CRIU there to store them.
pub(crate) struct Dialer {
    jobs: mpsc::Sender<Job>,
}

impl Dialer {
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let own = OwnedFd::from(std::fs::File::open("/proc/self/ns/net")?);
        std::thread::Builder::new().name("dialer".into()).spawn(move || {
            for job in queue {
                (job.work)(enter(&job.namespace));
                // A namespace with a thread in it outlives its sandbox, and so does the network pair. The next job enters another if this fails.
                let _ = enter(&own);
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

    /// Creates sockets inside `namespace`: runs `create` there, which must not block.
    pub(crate) async fn create<T: Send + 'static>(
        &self,
        namespace: &OwnedFd,
        create: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (answer, created) = oneshot::channel();
        let work = move |entered: io::Result<()>| {
            let _ = answer.send(entered.and_then(|()| create()));
        };
        let job = Job { namespace: namespace.try_clone()?, work: Box::new(work) };
        self.jobs.send(job).map_err(|_| io::ErrorKind::BrokenPipe)?;
        created.await.map_err(|_| io::ErrorKind::BrokenPipe)?
    }

    async fn connect_to(&self, namespace: &OwnedFd, address: SocketAddr) -> io::Result<TcpStream> {
        let v6 = address.is_ipv6();
        let socket = self.create(namespace, move || sys::tcp_socket(v6)).await?;
        let stream = TcpSocket::from_std_stream(StdTcpStream::from(socket)).connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
