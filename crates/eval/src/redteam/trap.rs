//! A trap for traffic that should not leave a sandbox: ports of this host that log what arrives.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;

/// Maximum wait for what a connection sends.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of arrivals that are kept.
const MAX_KEPT: usize = 20;

/// Ports that are open as long as it lives.
#[derive(Debug)]
pub(super) struct Trap {
    pub(super) tcp: u16,
    pub(super) udp: u16,
    arrivals: Arc<Mutex<Vec<String>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Trap {
    /// Opens ports on all addresses of this host.
    pub(super) async fn open() -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        let (tcp, udp) = (listener.local_addr()?.port(), socket.local_addr()?.port());
        let arrivals: Arc<Mutex<Vec<String>>> = Arc::default();
        let tasks = vec![
            tokio::spawn(connections(listener, Arc::clone(&arrivals))),
            tokio::spawn(datagrams(socket, Arc::clone(&arrivals))),
        ];
        Ok(Self { tcp, udp, arrivals, tasks })
    }

    /// Returns what has arrived so far.
    pub(super) fn arrivals(&self) -> Vec<String> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn keep(arrivals: &Mutex<Vec<String>>, arrival: String) {
    let mut kept = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() < MAX_KEPT {
        kept.push(arrival);
    }
}

/// A connection is kept when it is accepted: what it sends is only for the reader.
async fn connections(listener: TcpListener, arrivals: Arc<Mutex<Vec<String>>>) {
    while let Ok((mut stream, from)) = listener.accept().await {
        keep(&arrivals, format!("TCP connection from {}", from.ip()));
        let arrivals = Arc::clone(&arrivals);
        tokio::spawn(async move {
            let mut bytes = [0; 200];
            let read = tokio::time::timeout(TIMEOUT, stream.read(&mut bytes)).await;
            if let Ok(Ok(length @ 1..)) = read {
                let text =
                    String::from_utf8_lossy(&bytes[..length]).lines().next().unwrap_or_default().to_owned();
                keep(&arrivals, format!("which sent {text:?}"));
            }
        });
    }
}

async fn datagrams(socket: UdpSocket, arrivals: Arc<Mutex<Vec<String>>>) {
    let mut bytes = [0; 200];
    while let Ok((length, from)) = socket.recv_from(&mut bytes).await {
        keep(&arrivals, format!("{length} bytes by UDP from {}", from.ip()));
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn whatever_arrives_is_kept() {
        let trap = Trap::open().await.unwrap();
        assert_eq!(trap.arrivals(), Vec::<String>::new());
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", trap.tcp)).await.unwrap();
        stream.write_all(b"GET /x\r\n").await.unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(b"data", ("127.0.0.1", trap.udp)).await.unwrap();
        while trap.arrivals().len() < 3 {
            tokio::task::yield_now().await;
        }
        let all = trap.arrivals().join("; ");
        assert!(all.contains("TCP connection") && all.contains("GET /x") && all.contains("by UDP"), "{all}");
    }
}
