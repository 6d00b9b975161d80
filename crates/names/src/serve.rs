//! The sockets of DNS: datagrams, and connections for clients that have to ask again.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use crate::Zone;
use crate::limit::{Course, Limit};

/// Maximum length of a question; longer ones are not of use here.
const MAX_QUESTION: usize = 512;
/// Connections at once, and the time and the questions that one has.
const CONNECTIONS: usize = 64;
const CONNECTION_TIME: Duration = Duration::from_secs(10);
const QUESTIONS: usize = 32;
/// Pause after a socket has failed.
const RETRY: Duration = Duration::from_millis(50);

/// Sockets that questions come to.
#[derive(Debug)]
pub struct DnsSockets {
    /// For datagrams.
    pub udp: UdpSocket,
    /// For connections, at the same address.
    pub tcp: TcpListener,
}

/// Answers questions about the names of `zone`. Never returns.
pub async fn serve(sockets: DnsSockets, zone: Zone) {
    tokio::join!(datagrams(&sockets.udp, &zone), connections(&sockets.tcp, &zone));
}

async fn datagrams(socket: &UdpSocket, zone: &Zone) {
    let mut limit = Limit::new(Instant::now());
    let mut buffer = [0; MAX_QUESTION + 1];
    loop {
        let (length, sender) = match socket.recv_from(&mut buffer).await {
            Ok((length, sender)) if length <= MAX_QUESTION => (length, sender),
            Ok(_) => continue,
            // Such as that an earlier answer did not arrive.
            Err(error) => {
                tracing::debug!(%error, "no question could be received");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let course = limit.course(sender.ip(), Instant::now());
        if course == Course::Drop {
            continue;
        }
        if let Some(answer) = zone.answer(&buffer[..length], course == Course::AskAgain) {
            // A full buffer drops it, and the client asks again.
            let _ = socket.try_send_to(&answer, sender);
        }
    }
}

async fn connections(listener: &TcpListener, zone: &Zone) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let (stream, zone) = match listener.accept().await {
            Ok((stream, _)) => (stream, zone.clone()),
            Err(error) => {
                tracing::debug!(%error, "no connection for questions could be accepted");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        tokio::spawn(async move {
            let _ = tokio::time::timeout(CONNECTION_TIME, converse(stream, &zone)).await;
            drop(place);
        });
    }
}

async fn converse(mut stream: TcpStream, zone: &Zone) -> io::Result<()> {
    let mut buffer = [0; MAX_QUESTION];
    for _ in 0..QUESTIONS {
        let length = usize::from(stream.read_u16().await?);
        let Some(question) = buffer.get_mut(..length) else { break };
        stream.read_exact(question).await?;
        let Some(answer) = zone.answer(question, false) else { break };
        stream.write_all(&[&(answer.len() as u16).to_be_bytes()[..], &answer].concat()).await?;
    }
    Ok(())
}
