//! The server's end of the socket to the host process.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sandcove_channel::{Incoming, Outgoing, Sender, Sending};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use crate::envelope::{ToHost, ToServer};
use crate::failure::Failure;
use crate::message::{Order, Request};
use crate::reply::{Held, Release, Reply};

type Waiting = HashMap<u64, oneshot::Sender<Result<Reply, Failure>>>;

/// A connection to the host process. Dropping it closes it, upon which the host process releases what it holds for the server; sandboxes
/// go on.
pub(crate) struct Connection {
    sending: Sending,
    /// Requests without an answer; `None` once the connection has ended.
    waiting: Arc<Mutex<Option<Waiting>>>,
    last: AtomicU64,
    _receiving: AbortOnDropHandle<()>,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> Self {
        let stream = Arc::new(stream);
        let sending = Sending::new(stream.clone());
        let waiting = Arc::new(Mutex::new(Some(Waiting::new())));
        let receiving = tokio::spawn(receive_all(stream, sending.sender(), waiting.clone()));
        Self { sending, waiting, last: AtomicU64::new(0), _receiving: AbortOnDropHandle::new(receiving) }
    }

    pub(crate) async fn ask(&self, request: Request, fd: Option<OwnedFd>) -> Result<Reply, Failure> {
        let id = self.last.fetch_add(1, Ordering::Relaxed);
        let message = Outgoing::new(&ToHost::<Order>::Ask(id, request), fd, Vec::new())?;
        let (sender, answered) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.as_mut().ok_or_else(Failure::gone)?.insert(id, sender);
        }
        self.sending.sender().send(message).map_err(|_| Failure::gone())?;
        answered.await.map_err(|_| Failure::gone())?
    }

    pub(crate) fn order(&self, message: &Order) {
        order(&self.sending.sender(), message);
    }
}

/// Sends a message that is not answered; when the other side is gone, there is nothing to be done.
fn order(outgoing: &Sender, message: &Order) {
    match Outgoing::new(&ToHost::Order(message), None, Vec::new()) {
        Ok(message) => drop(outgoing.send(message)),
        Err(error) => tracing::error!(%error, "failed to write a message to the host process"),
    }
}

async fn receive_all(stream: Arc<UnixStream>, outgoing: Sender, waiting: Arc<Mutex<Option<Waiting>>>) {
    let mut incoming = Incoming::new(stream);
    let release: Release = Arc::new(move |number| order(&outgoing, &Order::Forget(number)));
    loop {
        let (message, fd) = match incoming.next::<ToServer>().await {
            Ok(Some(message)) => message,
            Ok(None) => break,
            Err(error) => {
                tracing::error!(%error, "the connection to the host process broke");
                break;
            }
        };
        let ToServer { id, outcome, number } = message;
        // Released at the end of this turn if nobody waits for the answer any more.
        let held = number.map(|number| Held::new(number, release.clone()));
        let sender = {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.as_mut().and_then(|waiting| waiting.remove(&id))
        };
        if let Some(sender) = sender {
            let outcome = outcome.map(|answer| Reply { answer, held, fd }).map_err(Failure::from);
            drop(sender.send(outcome));
        }
    }
    // Every waiting request fails.
    waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
}
